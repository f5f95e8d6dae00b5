// The types of blocks that weights are stored in by GGUF files, MXFP4 and `yaie quantize`: 32 to 256 numbers of
// a row share what they are multiplied with. Each kind says how a block lies in a file (`file`: the layouts are ggml's), and how
// the blocks of LANES rows lie interleaved here, where lanes are outputs: no sum runs across them, and what
// one step reads is in one piece.
//
// Interleaved, 32 codes are words of each lane. Of four bits, word w has the codes 8 w to 8 w + 7, lowest
// first, so that its halves of bytes are codes 0, 2, 4, 6 and 1, 3, 5, 7: the order of `Part::slices`.
#pragma once

#include <cstdint>
#include <cstring>

#include "dots.h"
#include "slices.h"

inline float half(const uint8_t* at) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
#if defined(__F16C__)
    return _cvtsh_ss(bits);
#else
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
    // A float16's exponent and fraction as those of a float32 are 2^112 times too small, denormals too.
    const uint32_t scaled = rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : rest << 13;
    float value;
    std::memcpy(&value, &scaled, 4);
    if (rest < 0x7c00) value *= 5.192296858534828e33f;
    return sign ? -value : value;
#endif
}

// Of each lane.
inline Floats halves(const uint8_t* at) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtph_ps(read<__m256i>(at));
#elif defined(__AVX2__) && defined(__F16C__)
    return (Floats)_mm256_cvtph_ps(read<__m128i>(at));
#else
    Floats all{};
    for (int lane = 0; lane < LANES; lane++) all[lane] = half(at + 2 * lane);
    return all;
#endif
}

inline Floats bytes_of(const uint8_t* at) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(read<__m128i>(at)));
#else
    Floats all{};
    for (int lane = 0; lane < LANES; lane++) all[lane] = float(at[lane]);
    return all;
#endif
}

inline void copy_lane(uint8_t* record, int lane, const uint8_t* from, int bytes) {
    std::memcpy(record + lane * bytes, from, bytes);
}

constexpr int WORD = 4 * LANES;             // bytes of a word of each lane
constexpr uint32_t NIBBLES = 0x0f0f0f0f, CRUMBS = 0x03030303;

// PART codes of four bits as words: `lane` of a record of NIBBLE_WORDS.
constexpr int NIBBLE_WORDS = 4, BYTE_WORDS = 8, CRUMB_WORDS = 2;

inline void put_nibbles(const uint8_t* codes, uint8_t* record, int lane) {
    for (int w = 0; w < NIBBLE_WORDS; w++) {
        uint32_t word = 0;
        for (int n = 0; n < 8; n++) word |= uint32_t(codes[8 * w + n] & 15) << (4 * n);
        std::memcpy(record + w * WORD + 4 * lane, &word, 4);
    }
}

inline void put_bytes(const uint8_t* codes, uint8_t* record, int lane) {
    for (int w = 0; w < BYTE_WORDS; w++)
        for (int n = 0; n < 4; n++) record[w * WORD + 4 * lane + n] = codes[w / 2 * 8 + w % 2 + 2 * n];
}

// The bits 4 and 5 of PART codes: bits 2 k and 2 k + 1 of the bytes of word c are those of group 4 c + k.
inline void put_crumbs(const uint8_t* codes, uint8_t* record, int lane) {
    for (int c = 0; c < CRUMB_WORDS; c++)
        for (int n = 0; n < 4; n++) {
            uint8_t byte = 0;
            for (int k = 0; k < 4; k++) {
                const int group = 4 * c + k;
                byte |= (codes[group / 2 * 8 + group % 2 + 2 * n] >> 4 & 3) << (2 * k);
            }
            record[c * WORD + 4 * lane + n] = byte;
        }
}

inline void nibble_groups(const uint8_t* record, Words* groups) {
    for (int w = 0; w < NIBBLE_WORDS; w++) {
        const Words word = read<Words>(record + w * WORD);
        groups[2 * w] = word & NIBBLES;
        groups[2 * w + 1] = word >> 4 & NIBBLES;
    }
}

// 32 codes of a block in a file: the low halves of 16 bytes come before the high ones.
inline void from_nibbles(const uint8_t* bytes, uint8_t* codes) {
    for (int i = 0; i < 16; i++) codes[i] = bytes[i] & 15, codes[16 + i] = bytes[i] >> 4;
}

// A type of blocks. FILE_BYTES: of a block in a file. PARTS: of 32 numbers in it. BYTES: of a block in a lane;
// HEAD: before a lane's first. A number is scale * (code - BIAS) + least. place: from a file's block into
// `lane` of a record of LANES blocks. groups: the codes of a part. scale, least: of it; of its halves where
// HALVES is 2.
struct Blocks {
    static constexpr int PARTS = 1, HALVES = 1, BIAS = 0, BITS = 4, HEAD = 0;
    static constexpr bool HAS_LEAST = false;
    const uint8_t* at;  // a record
    Floats least(int) const { return Floats{}; }
};

struct Q4_0 : Blocks {
    static constexpr int FILE_BYTES = 18, BYTES = 18, BIAS = 8;
    static void place(const uint8_t* file, uint8_t* record, int lane) {
        uint8_t codes[PART];
        from_nibbles(file + 2, codes);
        copy_lane(record, lane, file, 2);
        put_nibbles(codes, record + 2 * LANES, lane);
    }
    void groups(int, Words* found) const { nibble_groups(at + 2 * LANES, found); }
    Floats scale(int, int) const { return halves(at); }
};

struct Q4_1 : Blocks {
    static constexpr int FILE_BYTES = 20, BYTES = 20;
    static constexpr bool HAS_LEAST = true;
    static void place(const uint8_t* file, uint8_t* record, int lane) {
        uint8_t codes[PART];
        from_nibbles(file + 4, codes);
        copy_lane(record, lane, file, 2);
        copy_lane(record + 2 * LANES, lane, file + 2, 2);
        put_nibbles(codes, record + 4 * LANES, lane);
    }
    void groups(int, Words* found) const { nibble_groups(at + 4 * LANES, found); }
    Floats scale(int, int) const { return halves(at); }
    Floats least(int) const { return halves(at + 2 * LANES); }
};

struct Q8_0 : Blocks {
    static constexpr int FILE_BYTES = 34, BYTES = 34, BIAS = 128, BITS = 8;
    static void place(const uint8_t* file, uint8_t* record, int lane) {
        uint8_t codes[PART];
        for (int i = 0; i < PART; i++) codes[i] = file[2 + i] ^ 128;
        copy_lane(record, lane, file, 2);
        put_bytes(codes, record + 2 * LANES, lane);
    }
    void groups(int, Words* found) const {
        for (int g = 0; g < GROUPS; g++) found[g] = read<Words>(at + 2 * LANES + g * WORD);
    }
    Floats scale(int, int) const { return halves(at); }
};

// Eight scales and eight minima of six bits in 12 bytes of a file; two parts share 32 bytes of codes there.
struct Q4_K : Blocks {
    static constexpr int FILE_BYTES = 144, PARTS = 8, BYTES = 148, CODES = 20 * LANES;
    static constexpr bool HAS_LEAST = true;
    static void place(const uint8_t* file, uint8_t* record, int lane) {
        const uint8_t* packed = file + 4;
        copy_lane(record, lane, file, 2);
        copy_lane(record + 2 * LANES, lane, file + 2, 2);
        uint8_t *scales = record + 4 * LANES + lane, *least = scales + 8 * LANES;
        for (int i = 0; i < 4; i++) {
            scales[i * LANES] = packed[i] & 63;
            least[i * LANES] = packed[i + 4] & 63;
            scales[(i + 4) * LANES] = (packed[i + 8] & 15) | (packed[i] >> 6 << 4);
            least[(i + 4) * LANES] = (packed[i + 8] >> 4) | (packed[i + 4] >> 6 << 4);
        }
        for (int i = 0; i < PARTS; i++) {
            uint8_t codes[PART];
            const uint8_t* from = file + 16 + i / 2 * PART;
            for (int k = 0; k < PART; k++) codes[k] = i % 2 ? from[k] >> 4 : from[k] & 15;
            put_nibbles(codes, record + CODES + i * NIBBLE_WORDS * WORD, lane);
        }
    }
    void groups(int i, Words* found) const { nibble_groups(at + CODES + i * NIBBLE_WORDS * WORD, found); }
    Floats scale(int i, int) const { return halves(at) * bytes_of(at + (4 + i) * LANES); }
    Floats least(int i) const { return -halves(at + 2 * LANES) * bytes_of(at + (12 + i) * LANES); }
};

// Four low bits of a code, two high ones behind them; 16 codes share a scale of eight bits.
struct Q6_K : Blocks {
    static constexpr int FILE_BYTES = 210, PARTS = 8, BYTES = 210, BIAS = 32, HALVES = 2, BITS = 6;
    static constexpr int CODES = 18 * LANES, ALL = (NIBBLE_WORDS + CRUMB_WORDS) * WORD;
    static void place(const uint8_t* file, uint8_t* record, int lane) {
        copy_lane(record, lane, file + 208, 2);
        for (int s = 0; s < 16; s++) record[(2 + s) * LANES + lane] = file[192 + s];
        for (int i = 0; i < PARTS; i++) {
            const int upper = i / 4, j = i % 4;
            const uint8_t *low = file + upper * 64 + j % 2 * PART, *high = file + 128 + upper * PART;
            uint8_t codes[PART];
            for (int k = 0; k < PART; k++)
                codes[k] = (j < 2 ? low[k] & 15 : low[k] >> 4) | (high[k] >> (2 * j) & 3) << 4;
            put_nibbles(codes, record + CODES + i * ALL, lane);
            put_crumbs(codes, record + CODES + i * ALL + NIBBLE_WORDS * WORD, lane);
        }
    }
    void groups(int i, Words* found) const {
        nibble_groups(at + CODES + i * ALL, found);
        for (int g = 0; g < GROUPS; g++) {
            const Words word = read<Words>(at + CODES + i * ALL + (NIBBLE_WORDS + g / 4) * WORD);
            found[g] |= (word >> (2 * (g % 4)) & CRUMBS) << 4;
        }
    }
    Floats scale(int i, int half) const {
        const uint8_t* of_16 = at + (2 + 2 * i + half) * LANES;
        return halves(at) * load(reinterpret_cast<const int8_t*>(of_16));
    }
};

// Codes of four bits (E2M1) stand for numbers of which twice is whole, and 12 more not below 0. The scale is
// a power of two (E8M0, 127 is 1), of which half is taken.
struct MXFP4 : Blocks {
    static constexpr int FILE_BYTES = 17, BYTES = 17, BIAS = 12;
    static void place(const uint8_t* file, uint8_t* record, int lane) {
        uint8_t codes[PART];
        from_nibbles(file + 1, codes);
        copy_lane(record, lane, file, 1);
        put_nibbles(codes, record + LANES, lane);
    }
    void groups(int, Words* found) const {
        nibble_groups(at + LANES, found);
        for (int g = 0; g < GROUPS; g++) found[g] = doubled(found[g]);
    }
    static Words doubled(Words codes) {
        alignas(16) static constexpr uint8_t NUMBERS[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                            12, 11, 10, 9,  8,  6,  4,  0};
#if defined(__AVX512BW__)
        const __m512i table = _mm512_broadcast_i32x4(read<__m128i>(NUMBERS));
        return (Words)_mm512_shuffle_epi8(table, (__m512i)codes);
#elif defined(__AVX2__) && !defined(__AVX512F__)
        const __m256i table = _mm256_broadcastsi128_si256(read<__m128i>(NUMBERS));
        return (Words)_mm256_shuffle_epi8(table, (__m256i)codes);
#else
        uint8_t bytes[WORD];
        std::memcpy(bytes, &codes, sizeof codes);
        for (uint8_t& byte : bytes) byte = NUMBERS[byte];
        return read<Words>(bytes);
#endif
    }
    Floats scale(int, int) const {
        Words bits;
        for (int lane = 0; lane < LANES; lane++) bits[lane] = at[lane];
        const Words small = Words{} + 0x00200000u, normal = (bits - 1) << 23;
        return (Floats)(bits < 2 ? small << bits : normal);
    }
};

// What `yaie quantize` writes: groups of 32 PARTS inputs share a scale and a zero.
template <int GROUP_PARTS>
struct Int4 : Blocks {
    static constexpr int FILE_BYTES = 0, PARTS = GROUP_PARTS, BYTES = 3 + 16 * PARTS;
    static constexpr bool HAS_LEAST = true;
    void groups(int i, Words* found) const { nibble_groups(at + 3 * LANES + i * NIBBLE_WORDS * WORD, found); }
    Floats scale(int, int) const { return halves(at); }
    Floats least(int) const { return -halves(at) * bytes_of(at + 2 * LANES); }
};

// All inputs of an output share them.
struct Int8 : Blocks {
    static constexpr int FILE_BYTES = 0, BYTES = 32, BIAS = 128, BITS = 8, HEAD = 3;
    static constexpr bool HAS_LEAST = true;
    const uint8_t* head;
    void groups(int, Words* found) const {
        for (int g = 0; g < GROUPS; g++) found[g] = read<Words>(at + g * WORD);
    }
    Floats scale(int, int) const { return halves(head); }
    Floats least(int) const {
        return -halves(head) * load(reinterpret_cast<const int8_t*>(head + 2 * LANES));
    }
};

// The first block of a tile of rows of so many.
template <typename Kind>
inline Kind opened(const uint8_t* tiles, int64_t tile, int64_t blocks) {
    Kind first;
    const uint8_t* begin = tiles + tile * (Kind::HEAD + blocks * Kind::BYTES) * LANES;
    first.at = begin + Kind::HEAD * LANES;
    if constexpr (Kind::HEAD > 0) first.head = begin;
    return first;
}
