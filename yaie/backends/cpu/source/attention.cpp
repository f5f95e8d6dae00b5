// Attention of a flat batch over paged keys and values, without gathering them first.

#include <atomic>

#include "narrow.h"
#include "plan.h"
#include "threads.h"
#include "tiles.h"

// One layer's call, as `library.py` fills it. Strides are in elements; d is next to itself everywhere.
struct Attend {
    const void *q, *keys, *values;
    void* out;           // [tokens, heads, d]
    const float* sinks;  // [heads], or null
    int64_t q_token, q_head, block, slot, head;
    int64_t window;
    float scale, cap;
    int32_t heads, kv_heads, d, is_bfloat16, threads;
};

namespace {

// Pieces of work for each thread, at least, so that none ends long before the others.
constexpr size_t SPARE = 3;

// Memory of this thread, kept for its next unit, in pieces that begin at whole vectors.
class Memory {
   public:
    Memory() { kept().used = 0; }

    float* floats(size_t count) {
        auto& mine = kept();
        if (mine.used == mine.pieces.size()) mine.pieces.emplace_back();
        auto& piece = mine.pieces[mine.used++];
        const size_t vectors = (count + LANES - 1) / LANES;
        if (piece.size() < vectors) piece.resize(vectors);
        return reinterpret_cast<float*>(piece.data());
    }

   private:
    struct Vector {
        alignas(LANES * 4) float lanes[LANES];
    };
    struct Kept {
        std::vector<std::vector<Vector>> pieces;
        size_t used = 0;
    };
    static Kept& kept() {
        static thread_local Kept mine;
        return mine;
    }
};

// What is known of rows (a token and a head each) while keys are left for them; in memory of this thread,
// kept for its next layer.
template <int WHICH>
class Known {
   public:
    float *out = nullptr, *top = nullptr, *sum = nullptr;  // [rows, depth], [rows], [rows]

    Known(size_t rows, int depth) {
        static thread_local std::vector<float> memory;
        if (rows == 0) return;
        const size_t needed = rows * (depth + 2);
        if (memory.size() < needed) memory.resize(needed);
        out = memory.data(), top = out + rows * depth, sum = top + rows;
    }
};

template <typename T>
class Layer {
   public:
    Layer(const Plan& plan, const Attend& call)
        : plan_(plan),
          call_(call),
          group_(call.heads / call.kv_heads),
          depth_(depth_of(call.d)),
          before_(plan.has_shared() ? plan.positions.size() * call.heads : 0, depth_),
          kept_(size_t(plan.kept) * call.heads, depth_) {}

    void run() {
        for (const auto& level : plan_.levels) {
            // The heads of a tile of keys lie side by side: as few threads as keep all busy share them.
            const size_t count = level.pieces.size();
            const int wanted = int((SPARE * call_.threads + count - 1) / std::max<size_t>(1, count));
            const int parts = std::min(std::max(1, wanted), call_.kv_heads);
            std::vector<std::atomic<int>> done(level.units.size() * parts);
            for_each(int(count) * parts, call_.threads, [&](int i) {
                const Piece& piece = level.pieces[i / parts];
                const Unit& unit = level.units[piece.unit];
                const int part = i % parts;
                const int first = call_.kv_heads * part / parts, end = call_.kv_heads * (part + 1) / parts;
                attend(unit, piece, first, end);
                // The one that ends last joins all, in their order.
                if (piece.count > 1 && ++done[piece.unit * parts + part] == piece.count)
                    join(unit, piece, first, end);
            });
        }
    }

   private:
    // The rows of some key heads, [heads, rows] of each; number i of row r is at q[r * across + i * down].
    struct Rows {
        int64_t across, down;
        size_t matrix, width, all_rows;
        float *q, *out, *top, *sum;
        int32_t* last;
    };

    void attend(const Unit& unit, const Piece& piece, int first_head, int end_head) {
        const int rows = unit.rows * group_;
        const bool narrow = rows <= NARROW;
        const int width = narrow ? rows : (rows + LANES - 1) / LANES * LANES;
        const size_t heads = end_head - first_head, matrix = size_t(width) * depth_;
        const size_t all_rows = (heads * width + LANES - 1) / LANES * LANES;
        Memory memory;
        Rows all{narrow ? depth_ : 1, narrow ? 1 : width, matrix, size_t(width), all_rows,
                 memory.floats(heads * matrix), memory.floats(heads * matrix), memory.floats(all_rows),
                 memory.floats(all_rows), reinterpret_cast<int32_t*>(memory.floats(all_rows))};
        for (size_t i = 0; i < all_rows; i++) {  // rows of nobody see what the first one sees
            const int r = i < heads * width ? int(i % width) : 0;
            all.last[i] = plan_.positions[row_of(unit, 0, r < rows ? r : 0) / call_.heads];
            all.top[i] = -INFINITE, all.sum[i] = 0.0f;
        }
        for (int h = first_head; h < end_head; h++) open(unit, piece, h, all, h - first_head);
        const auto [lowest, highest] = std::minmax_element(all.last, all.last + rows);
        const int64_t first = std::max(piece.begin, *lowest + 1 - call_.window);
        if (narrow)
            attend_narrow(unit, first, piece.end, first_head, end_head, all, memory);
        else
            attend_wide(unit, first_head, end_head, first, all, *lowest, *highest, memory);
        for (int h = first_head; h < end_head; h++) close(unit, piece, h, all, h - first_head);
    }

    void attend_narrow(const Unit& unit, int64_t first, int64_t end, int first_head, int end_head,
                       const Rows& all, Memory& memory) const {
        const int heads = end_head - first_head;
        const Narrow narrow{heads, int(all.width), call_.d, depth_, all.last, all.q, all.out, all.top, all.sum,
                            memory.floats(heads * all.width * STRETCH), memory.floats(heads * all.width)};
        Tokens<T> tokens;
        tokens.keys = static_cast<const T*>(call_.keys), tokens.values = static_cast<const T*>(call_.values);
        tokens.head = call_.head;
        for (tokens.first = first; tokens.first < end; tokens.first += STRETCH) {
            tokens.count = int(std::min<int64_t>(STRETCH, end - tokens.first));
            const int known = int(std::min<int64_t>(2 * STRETCH, end - tokens.first));
            each_key(unit, first_head, tokens.first, known, [&](int64_t at, int k) { tokens.at[k] = at; });
            std::fill(tokens.at + known, tokens.at + 2 * STRETCH, tokens.at[known - 1]);
            narrow.see(tokens, {call_.cap, call_.window});
        }
    }

    void attend_wide(const Unit& unit, int first_head, int end_head, int64_t first, const Rows& all,
                     int64_t lowest, int64_t highest, Memory& memory) const {
        const size_t size = size_t(TILE) * depth_;
        Tile tile{memory.floats(size), memory.floats(size), first, 0};
        float *s = memory.floats(TILE * all.width), *kept = memory.floats(all.width);
        for (; tile.first < unit.end; tile.first += TILE) {
            tile.count = int(std::min<int64_t>(TILE, unit.end - tile.first));
            const bool sees_all =
                tile.first + tile.count - 1 <= lowest && tile.first > highest - call_.window;
            for (int h = first_head; h < end_head; h++) {
                fetch(unit, h, tile);
                const size_t i = h - first_head, matrix = i * all.matrix, row = i * all.width;
                Wide{int(all.width), depth_, all.last, all.q + matrix, all.out + matrix, all.top + row,
                     all.sum + row, s, kept}.see(tile, {call_.cap, call_.window}, !sees_all);
            }
        }
    }

    int64_t row_of(const Unit& unit, int kv_head, int r) const {
        const int64_t token = plan_.rows[unit.first_row + r / group_];
        return token * call_.heads + int64_t(kv_head) * group_ + r % group_;
    }

    // Queries of the unit's i-th head, and what is known of them so far.
    void open(const Unit& unit, const Piece& piece, int kv_head, const Rows& all, size_t i) const {
        float *q = all.q + i * all.matrix, *out = all.out + i * all.matrix;
        float *top = all.top + i * all.width, *sum = all.sum + i * all.width;
        std::memset(q, 0, sizeof(float) * all.matrix);
        std::memset(out, 0, sizeof(float) * all.matrix);
        for (int r = 0; r < unit.rows * group_; r++) {
            const int64_t row = row_of(unit, kv_head, r);
            const T* from = static_cast<const T*>(call_.q) + row / call_.heads * call_.q_token +
                            row % call_.heads * call_.q_head;
            for (int j = 0; j < call_.d; j++)
                q[r * all.across + j * all.down] = load_one(from + j) * call_.scale;
            if (unit.opens || piece.index > 0) continue;
            top[r] = before_.top[row], sum[r] = before_.sum[row];
            const float* before = before_.out + row * depth_;
            for (int j = 0; j < call_.d; j++) out[r * all.across + j * all.down] = before[j];
        }
    }

    // Calls row(place in the pool, k) for keys [first, first + count) of a unit, in order.
    template <typename Row>
    void each_key(const Unit& unit, int kv_head, int64_t first, int count, const Row& row) const {
        const int32_t* table = plan_.batch.table(unit.table);
        const int size = plan_.batch.block_size;
        for (int k = 0; k < count;) {
            const int64_t block = (first + k) / size, slot = (first + k) % size;
            int64_t at = table[block] * call_.block + slot * call_.slot + kv_head * call_.head;
            for (int64_t left = size - slot; left > 0 && k < count; left--, at += call_.slot) row(at, k++);
        }
    }

    // Copies and widens a tile's keys and values of one head.
    void fetch(const Unit& unit, int kv_head, const Tile& tile) const {
        const int d = call_.d, depth = depth_;
        for (const auto& [pool, to] : {std::pair{call_.keys, tile.keys}, {call_.values, tile.values}}) {
            const T* from = static_cast<const T*>(pool);
            float* out = to;
            each_key(unit, kv_head, tile.first, tile.count,
                     [=](int64_t at, int k) { copy(from + at, out + k * depth, d, depth); });
        }
        const int left = (LANES - tile.count % LANES) % LANES;  // vectors of keys are whole
        std::memset(tile.keys + tile.count * depth_, 0, sizeof(float) * left * depth_);
    }

    static void copy(const T* __restrict from, float* __restrict to, int d, int depth) {
        int i = 0;
        for (; i + LANES <= d; i += LANES) store(to + i, load(from + i));
        if (i == depth) return;
        for (; i < d; i++) to[i] = load_one(from + i);
        for (; i < depth; i++) to[i] = 0.0f;
    }

    // To the output, or to where the next level or the join finds it.
    void close(const Unit& unit, const Piece& piece, int kv_head, const Rows& all, size_t i) {
        const float *out = all.out + i * all.matrix, *top = all.top + i * all.width;
        const float* sum = all.sum + i * all.width;
        for (int r = 0; r < unit.rows * group_; r++) {
            const float* from = out + r * all.across;
            if (piece.count == 1) {
                finish(unit, row_of(unit, kv_head, r), from, all.down, top[r], sum[r]);
                continue;
            }
            const int64_t row = kept_row(piece.first_kept, kv_head, r);
            kept_.top[row] = top[r], kept_.sum[row] = sum[r];
            float* to = kept_.out + row * depth_;
            for (int j = 0; j < call_.d; j++) to[j] = from[j * all.down];
        }
    }

    void finish(const Unit& unit, int64_t row, const float* out, int64_t down, float top, float sum) {
        if (!unit.closes) {
            before_.top[row] = top, before_.sum[row] = sum;
            float* to = before_.out + row * depth_;
            for (int j = 0; j < call_.d; j++) to[j] = out[j * down];
            return;
        }
        T* to = static_cast<T*>(call_.out) + row * call_.d;
        const float factor = normalised(top, sum, row % call_.heads);
        for (int j = 0; j < call_.d; j++) store_one(to + j, out[j * down] * factor);
    }

    int64_t kept_row(int64_t first_kept, int kv_head, int r) const {
        return (first_kept + r / group_) * call_.heads + int64_t(kv_head) * group_ + r % group_;
    }

    // What pieces of a unit have kept of some key heads becomes one, as between tiles.
    void join(const Unit& unit, const Piece& piece, int first_head, int end_head) {
        const int64_t first = piece.first_kept - int64_t(piece.index) * unit.rows;
        Memory memory;
        float *out = memory.floats(depth_), *factors = memory.floats(piece.count);
        for (int h = first_head; h < end_head; h++)
            for (int r = 0; r < unit.rows * group_; r++) {
                const auto row = [&](int i) { return kept_row(first + int64_t(i) * unit.rows, h, r); };
                float top = -INFINITE, sum = 0.0f;
                for (int i = 0; i < piece.count; i++) top = std::max(top, kept_.top[row(i)]);
                const float shift = top == -INFINITE ? 0.0f : top;
                for (int i = 0; i < piece.count; i++) factors[i] = kept_.top[row(i)];
                for (int i = 0; i < piece.count; i += LANES)
                    store(factors + i, exponential(load(factors + i) - shift));
                std::memset(out, 0, sizeof(float) * depth_);
                for (int i = 0; i < piece.count; i++) {
                    const float *from = kept_.out + row(i) * depth_, factor = factors[i];
                    for (int j = 0; j < call_.d; j++) out[j] += from[j] * factor;
                    sum += kept_.sum[row(i)] * factor;
                }
                finish(unit, row_of(unit, h, r), out, 1, top, sum);
            }
    }

    // What a weighted sum is multiplied by at the end. A sink is a score without a value.
    float normalised(float top, float sum, int64_t head) const {
        if (call_.sinks == nullptr) return sum > 0.0f || sum != sum ? 1.0f / sum : 0.0f;
        const float sink = call_.sinks[head], most = top > sink ? top : sink;
        const float own = exponential(all(top - most))[0];
        return own / (sum * own + exponential(all(sink - most))[0]);
    }

    const Plan& plan_;
    const Attend& call_;
    const int group_, depth_;
    const Known<0> before_;  // of all rows, after the levels so far
    const Known<1> kept_;    // of pieces
};

}  // namespace

extern "C" {

void yaie_set_team(void* call) { team() = reinterpret_cast<Team>(call); }

int yaie_lanes() { return LANES; }

// The arrays must live as long as the plan. group: query heads for each key head.
void* yaie_make_plan(const int32_t* starts, const int32_t* lens, const int32_t* tables, int64_t table_width,
                     int32_t n, int32_t block_size, int32_t group, int32_t shares) {
    const Batch batch{starts, lens, tables, table_width, n, block_size};
    return new Plan(batch, WIDEST / group, NARROW / group, shares != 0);
}

void yaie_free_plan(void* plan) { delete static_cast<Plan*>(plan); }

int yaie_plan_levels(const void* plan) { return int(static_cast<const Plan*>(plan)->levels.size()); }

void yaie_attend(const void* plan, const Attend* call) {
    const Plan& planned = *static_cast<const Plan*>(plan);
    if (call->is_bfloat16)
        Layer<BFloat16>(planned, *call).run();
    else
        Layer<float>(planned, *call).run();
}
}
