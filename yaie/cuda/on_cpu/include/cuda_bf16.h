// __nv_bfloat16 and __nv_bfloat162.
#pragma once

#include "cuda_runtime.h"
#include "yaie/small_floats.h"

YAIE_SMALL_FLOAT(__nv_bfloat16, __nv_bfloat162, yaie_bfloat16_to_float, yaie_float_to_bfloat16)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __bfloat162float(__nv_bfloat16 x) { return float(x); }
YAIE_INLINE __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
YAIE_INLINE __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
YAIE_INLINE __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(float(x)); }
inline int __bfloat162int_rn(__nv_bfloat16 x) { return int(rintf(float(x))); }
YAIE_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
YAIE_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
YAIE_INLINE __nv_bfloat162 __float2bfloat162_rn(float x) { return __floats2bfloat162_rn(x, x); }
YAIE_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
YAIE_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
YAIE_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
YAIE_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
YAIE_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
YAIE_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
YAIE_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return yaie_bits<__nv_bfloat16>(bits);
}
