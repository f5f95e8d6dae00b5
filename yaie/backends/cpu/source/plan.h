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

// What a thread takes of a unit: keys [begin, end). A unit of few rows is cut at every LENGTH-th key of its
// table, wherever it lies in a batch, so that no sum depends on the number of threads. What is known of the
// rows after each of several pieces is kept at [first_kept, first_kept + rows), and joined at the end.
struct Piece {
    static constexpr int64_t LENGTH = 256;
    int32_t unit, index, count;
    int64_t begin, end, first_kept;
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
    struct Level {
        std::vector<Unit> units;
        std::vector<Piece> pieces;
    };
    std::vector<Level> levels;
    int64_t kept = 0;                // tokens that pieces of the largest level keep
    std::vector<int32_t> rows;       // tokens of the batch, as units name them
    std::vector<int32_t> positions;  // of each token of the batch
    Batch batch;

    // tokens: that a unit takes at most. few: up to which it is cut into pieces.
    Plan(const Batch& given, int tokens, int few, bool shares) : batch(given), tokens_(std::max(1, tokens)) {
        done_.assign(batch.n, 0);
        for (int i = 0; i < batch.n; i++)
            for (int j = 0; j < batch.queries(i); j++) positions.push_back(int32_t(batch.before(i) + j));
        if (shares && batch.n > 1) share();
        levels.emplace_back();
        for (int i = 0; i < batch.n; i++) own(i);
        for (auto& level : levels) {  // the largest first, so that no thread ends long after the others
            std::stable_sort(level.units.begin(), level.units.end(), [](const Unit& a, const Unit& b) {
                return a.cost() > b.cost();
            });
            cut(level, few);
        }
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
        add(levels[level].units, *from, all, begin * batch.block_size, end * batch.block_size, false);
    }

    void own(int i) {
        const int32_t start = batch.starts[i], count = batch.queries(i);
        for (int32_t at = 0; at < count; at += tokens_) {
            std::vector<int32_t> some;
            for (int32_t j = at; j < std::min(count, at + tokens_); j++) some.push_back(start + j);
            add(levels.back().units, i, some, done_[i], positions[some.back()] + 1, true);
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

    void cut(Level& level, int few) {
        int64_t used = 0;
        for (size_t i = 0; i < level.units.size(); i++) {
            const Unit& unit = level.units[i];
            const int64_t first = unit.begin / Piece::LENGTH, last = (unit.end - 1) / Piece::LENGTH;
            const int32_t count = unit.rows <= few && last > first ? int32_t(last - first + 1) : 1;
            for (int32_t j = 0; j < count; j++) {
                const int64_t begin = j == 0 ? unit.begin : (first + j) * Piece::LENGTH;
                const int64_t end = j == count - 1 ? unit.end : (first + j + 1) * Piece::LENGTH;
                level.pieces.push_back({int32_t(i), j, count, begin, end, used});
                if (count > 1) used += unit.rows;
            }
        }
        kept = std::max(kept, used);
    }

    int tokens_;
    std::vector<int64_t> done_;  // keys of each sequence that are attended to with others
};
