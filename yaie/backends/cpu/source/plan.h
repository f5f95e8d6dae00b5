// Which keys are attended together in a step: the part of a block table that several sequences begin with
// is read once for all of them, level by level of the tree that the tables make, and what is left is
// read for each sequence alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

// Sharing is worth a pass of its own if it saves at least this many keys.
constexpr int64_t WORTH_SHARING = 128;

// What is attended to in one go: keys [begin, end) of a table by some tokens of the batch.
// opens: nothing was attended to before. closes: nothing is left afterwards.
struct Unit {
    int32_t table, rows, first_row;
    int64_t begin, end;
    bool opens, closes;
    int64_t cost() const { return (end - begin) * rows; }
};

// A flat batch as the engine hands it over, see AttentionBatch: n sequences.
struct Batch {
    const int32_t *starts, *lens, *tables;  // [n + 1], [n], [n, table_width]
    int64_t table_width;
    int32_t n, block_size;

    int32_t queries(int i) const { return starts[i + 1] - starts[i]; }
    int64_t before(int i) const { return lens[i] - queries(i); }
    const int32_t* table(int i) const { return tables + i * table_width; }
};

class Plan {
   public:
    std::vector<std::vector<Unit>> levels;
    std::vector<int32_t> rows;       // tokens of the batch, as units name them
    std::vector<int32_t> positions;  // of each token of the batch
    Batch batch;

    // tokens: that a unit takes at most.
    Plan(const Batch& given, int tokens, bool shares) : batch(given), tokens_(std::max(1, tokens)) {
        done_.assign(batch.n, 0);
        for (int i = 0; i < batch.n; i++)
            for (int j = 0; j < batch.queries(i); j++) positions.push_back(int32_t(batch.before(i) + j));
        if (shares && batch.n > 1) share();
        levels.emplace_back();
        for (int i = 0; i < batch.n; i++) own(i);
        for (auto& level : levels)  // the largest first, so that no thread ends long after the others
            std::stable_sort(level.begin(), level.end(), [](const Unit& a, const Unit& b) {
                return a.cost() > b.cost();
            });
    }

    bool has_shared() const { return levels.size() > 1; }

   private:
    // Blocks of a sequence that all its queries see in whole.
    int64_t usable(int i) const { return batch.before(i) / batch.block_size; }

    void share() {
        std::vector<int> order;
        for (int i = 0; i < batch.n; i++)
            if (batch.queries(i) > 0 && usable(i) > 0) order.push_back(i);
        std::sort(order.begin(), order.end(), [&](int a, int b) {
            return std::lexicographical_compare(batch.table(a), batch.table(a) + usable(a),
                                                batch.table(b), batch.table(b) + usable(b));
        });
        branch(order.data(), order.data() + order.size(), 0, 0, 0);
    }

    // Sequences [from, to), in the order of their tables, of which the first `same` blocks are the same and
    // the first `done` are attended to already, in `level` passes.
    void branch(const int* from, const int* to, int64_t same, int64_t done, size_t level) {
        for (const int* end; from != to; from = end, end = nullptr) {
            end = from + 1;
            if (usable(*from) <= same) continue;
            const int32_t block = batch.table(*from)[same];
            while (end != to && batch.table(*end)[same] == block) end++;
            const int64_t count = end - from;
            if (count == 1) continue;
            const int64_t common = common_blocks(*from, end[-1]);
            int64_t reached = done;
            size_t next = level;
            if ((common - done) * batch.block_size * (count - 1) >= WORTH_SHARING) {
                together(from, end, done, common, level);
                reached = common, next = level + 1;
            }
            branch(from, end, common, reached, next);
        }
    }

    int64_t common_blocks(int a, int b) const {
        const int64_t most = std::min(usable(a), usable(b));
        int64_t count = 0;
        while (count < most && batch.table(a)[count] == batch.table(b)[count]) count++;
        return count;
    }

    void together(const int* from, const int* to, int64_t begin, int64_t end, size_t level) {
        std::vector<int32_t> all;
        for (const int* i = from; i != to; i++) {
            for (int j = batch.starts[*i]; j < batch.starts[*i + 1]; j++) all.push_back(j);
            done_[*i] = end * batch.block_size;
        }
        if (levels.size() <= level) levels.resize(level + 1);
        add(levels[level], *from, all, begin * batch.block_size, end * batch.block_size, false);
    }

    void own(int i) {
        const int32_t start = batch.starts[i], count = batch.queries(i);
        for (int32_t at = 0; at < count; at += tokens_) {
            std::vector<int32_t> some;
            for (int32_t j = at; j < std::min(count, at + tokens_); j++) some.push_back(start + j);
            add(levels.back(), i, some, done_[i], positions[some.back()] + 1, true);
        }
    }

    void add(std::vector<Unit>& level, int table, const std::vector<int32_t>& tokens, int64_t begin,
             int64_t end, bool closes) {
        for (size_t at = 0; at < tokens.size(); at += tokens_) {
            const size_t count = std::min(tokens.size() - at, size_t(tokens_));
            level.push_back({table, int32_t(count), int32_t(rows.size()), begin, end, begin == 0, closes});
            rows.insert(rows.end(), tokens.begin() + at, tokens.begin() + at + count);
        }
    }

    int tokens_;
    std::vector<int64_t> done_;  // keys of each sequence that are attended to with others
};
