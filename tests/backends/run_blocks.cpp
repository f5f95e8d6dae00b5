// Products of a file's blocks by the library, for processors that Python does not run on here. Reads and writes
// raw numbers: see test_cpu_blocks_on_arm.py.
#include <cstdint>
#include <cstdio>
#include <vector>

struct BlockPart {
    const uint8_t* blocks;
    int64_t outputs;
    int32_t kind;
};

struct BlocksProduct {
    const BlockPart* parts;
    const void *x, *gain, *bias, *residual;
    void* out;
    int64_t rows, inputs, stride;
    float eps;
    int32_t num_parts, gated, is_bfloat16, threads;
};

extern "C" {
int yaie_lanes();
int yaie_has_dots();
int64_t yaie_block_bytes(int kind);
void yaie_arrange_blocks(const uint8_t*, uint8_t*, int64_t, int64_t, int, int);
void yaie_blocks_product(const BlocksProduct*);
void yaie_blocks_numbers(const BlockPart*, void*, int64_t, int, int);
}

template <typename T>
std::vector<T> read(FILE* file, int64_t count) {
    std::vector<T> all(count);
    if (fread(all.data(), sizeof(T), count, file) != size_t(count)) throw 1;
    return all;
}

int main(int, char** names) {
    FILE *from = fopen(names[1], "rb"), *to = fopen(names[2], "wb");
    const int lanes = yaie_lanes();
    for (int64_t head[6]; fread(head, 8, 6, from) == 6;) {
        const int64_t kind = head[0], rows = head[1], inputs = head[2], outputs = head[3];
        const auto stored = read<uint8_t>(from, head[4]);
        const auto x = read<float>(from, rows * inputs);
        std::vector<uint8_t> tiles((outputs + lanes - 1) / lanes * head[5] * yaie_block_bytes(int(kind)));
        yaie_arrange_blocks(stored.data(), tiles.data(), inputs, outputs, int(kind), 1);
        const BlockPart part{tiles.data(), outputs, int32_t(kind)};
        std::vector<float> out(rows * outputs), numbers(inputs * outputs);
        const BlocksProduct call{&part,  x.data(), nullptr, nullptr, nullptr, out.data(), rows,
                                 inputs, outputs,  0,       1,       0,       0,          1};
        yaie_blocks_product(&call);
        yaie_blocks_numbers(&part, numbers.data(), inputs, 0, 1);
        fwrite(out.data(), 4, out.size(), to);
        fwrite(numbers.data(), 4, numbers.size(), to);
    }
    fclose(to);
    printf("%d lanes, dots %d\n", lanes, yaie_has_dots());
}
