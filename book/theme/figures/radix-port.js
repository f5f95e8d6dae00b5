// The reference's radix tree (solutions/radix_tree) in JavaScript, method by method: the same calls lead to the same
// tree, which tests/book/test_radix_figure.py checks. Only the queue of leaves is left out: eviction looks for the leaf
// that was used longest ago, where the reference keeps a heap.
'use strict';

const radixPort = (() => {
  const same = (a, b) => a.length === b.length && a.every((token, at) => token === b[at]);

  class Node {
    constructor(tokens = [], blocks = [], parent = null) {
      Object.assign(this, { tokens, blocks, parent, children: new Map(), lockCount: 0, lastUsed: 0 });
    }

    /** An unlocked leaf. The root is never one. */
    get isEvictable() { return this.lockCount === 0 && this.children.size === 0 && this.parent !== null; }
  }

  class RadixTree {
    constructor(blockSize) {
      this.blockSize = blockSize;
      this.root = new Node();
      this.tick = 0;
    }

    get numBlocks() { return this.allBlocks().length; }
    get numEvictable() { return this.nodes().filter((node) => !node.lockCount).flatMap(({ blocks }) => blocks).length; }
    key(tokens) { return tokens.slice(0, this.blockSize).join('\u0000'); }

    /** Blocks of the longest cached prefix, at most maxBlocks. Changes nothing. */
    peek(tokens, maxBlocks) {
      return this.walk(tokens, maxBlocks).flatMap(([node, matched]) => node.blocks.slice(0, matched));
    }

    /** [blocks, node] of the longest cached prefix of whole blocks. The node is split where the match ends. */
    matchPrefix(tokens, maxBlocks) {
      this.tick += 1;
      const blocks = [];
      let end = this.root;
      for (const [node, matched] of this.walk(tokens, maxBlocks)) {
        end = matched < node.blocks.length ? this.split(node, matched) : node;
        end.lastUsed = this.tick;
        blocks.push(...end.blocks);
      }
      return [blocks, end];
    }

    /** The nodes along the longest cached prefix, each with how many of its blocks match. */
    walk(tokens, maxBlocks) {
      const size = this.blockSize, found = [];
      let [node, done] = [this.root, 0];
      while (done < maxBlocks) {
        const first = tokens.slice(done * size, (done + 1) * size);
        const child = first.length === size ? node.children.get(this.key(first)) : undefined;
        if (!child) break;
        const matched = this.commonBlocks(child, tokens, done, maxBlocks);
        found.push([child, matched]);
        if (matched < child.blocks.length) break;
        [node, done] = [child, done + matched];
      }
      return found;
    }

    /** How many of a node's blocks agree with the tokens from block `done` on; the first does. */
    commonBlocks(node, tokens, done, maxBlocks) {
      const size = this.blockSize;
      const limit = Math.min(node.blocks.length, maxBlocks - done, Math.floor(tokens.length / size) - done);
      let matched = 1;
      while (matched < limit && same(node.tokens.slice(matched * size, (matched + 1) * size),
        tokens.slice((done + matched) * size, (done + matched + 1) * size))) matched += 1;
      return matched;
    }

    /** Files blocks of tokens; returns [how many were there already, node]. The tree keeps its own blocks for those. */
    insert(tokens, blockIds) {
      const [matched, node] = this.matchPrefix(tokens, blockIds.length);
      const existing = matched.length;
      if (existing === blockIds.length) return [existing, node];
      const own = tokens.slice(existing * this.blockSize, blockIds.length * this.blockSize);
      const leaf = new Node(own, blockIds.slice(existing), node);
      node.children.set(this.key(own), leaf);
      leaf.lastUsed = this.tick;
      return [existing, leaf];
    }

    /** Cuts a node after numBlocks blocks; returns the new upper node, which starts with the same locks. */
    split(node, numBlocks) {
      const cut = numBlocks * this.blockSize, { parent } = node;
      const upper = new Node(node.tokens.slice(0, cut), node.blocks.slice(0, numBlocks), parent);
      [upper.lockCount, upper.lastUsed] = [node.lockCount, node.lastUsed];
      parent.children.set(this.key(upper.tokens), upper);
      [node.tokens, node.blocks, node.parent] = [node.tokens.slice(cut), node.blocks.slice(numBlocks), upper];
      upper.children.set(this.key(node.tokens), node);
      return upper;
    }

    lock(node) { for (const step of this.pathUp(node)) step.lockCount += 1; }
    unlock(node) { for (const step of this.pathUp(node)) step.lockCount -= 1; }

    /** From a node up to, not including, the root. */
    pathUp(node) {
      const path = [];
      for (let at = node; at.parent; at = at.parent) path.push(at);
      return path;
    }

    pathBlocks(node) { return this.pathUp(node).reverse().flatMap(({ blocks }) => blocks); }

    /** Removes up to numBlocks blocks, least recently used unlocked leaves first, each from its end. */
    evict(numBlocks) {
      const evicted = [];
      while (evicted.length < numBlocks) {
        const leaves = this.nodes().filter((node) => node.isEvictable);
        if (!leaves.length) break;
        const leaf = leaves.reduce((oldest, each) => (each.lastUsed < oldest.lastUsed ? each : oldest));
        const keep = Math.max(0, leaf.blocks.length - (numBlocks - evicted.length));
        evicted.push(...leaf.blocks.slice(keep).reverse());
        if (keep) {
          leaf.blocks.length = keep;
          leaf.tokens.length = keep * this.blockSize;
        } else {
          leaf.parent.children.delete(this.key(leaf.tokens));
          leaf.parent = null;
        }
      }
      return evicted;
    }

    allBlocks() { return this.nodes().flatMap(({ blocks }) => blocks); }

    /** Every node but the root, parents first. */
    nodes() {
      const below = (node) => [...node.children.values()].flatMap((child) => [child, ...below(child)]);
      return below(this.root);
    }

    /** The node that ends with this block; the root for -1. */
    ending(block) { return this.nodes().find(({ blocks }) => blocks.at(-1) === block) ?? this.root; }

    /** Nodes as the figure draws them: at is how many blocks stand above a node on its path. */
    shown() {
      const size = this.blockSize;
      return this.nodes().map((node) => ({
        at: this.pathBlocks(node).length - node.blocks.length,
        texts: node.blocks.map((_, at) => node.tokens.slice(at * size, (at + 1) * size).join('')),
        blocks: [...node.blocks], locks: node.lockCount, used: node.lastUsed,
      }));
    }

    /** A tree as it was shown. */
    static from(blockSize, shown) {
      const tree = new RadixTree(blockSize);
      const path = [];
      for (const { at, texts, blocks, locks, used } of shown) {
        while (path.length && path.at(-1)[0] > at) path.pop();
        const parent = path.length ? path.at(-1)[1] : tree.root;
        const node = new Node([...texts.join('')], [...blocks], parent);
        [node.lockCount, node.lastUsed] = [locks, used];
        parent.children.set(tree.key(node.tokens), node);
        tree.tick = Math.max(tree.tick, used);
        path.push([at + blocks.length, node]);
      }
      return tree;
    }
  }

  return { RadixTree };
})();
