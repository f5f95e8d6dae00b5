// __half and __half2.
#pragma once

#include "cuda_runtime.h"
#include "yaie/small_floats.h"

YAIE_SMALL_FLOAT(__half, __half2, yaie_half_to_float, yaie_float_to_half)
using half = __half;
using half2 = __half2;

inline float __half2float(__half x) { return float(x); }
YAIE_INLINE __half __float2half(float x) { return __half(x); }
YAIE_INLINE __half __float2half_rn(float x) { return __half(x); }
YAIE_INLINE __half __int2half_rn(int x) { return __half(float(x)); }
inline int __half2int_rn(__half x) { return int(rintf(float(x))); }
YAIE_INLINE __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
YAIE_INLINE __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
YAIE_INLINE __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
YAIE_INLINE float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
YAIE_INLINE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
YAIE_INLINE __half2 __half2half2(__half x) { return {x, x}; }
YAIE_INLINE __half2 make_half2(__half x, __half y) { return {x, y}; }
YAIE_INLINE __half __low2half(__half2 v) { return v.x; }
YAIE_INLINE __half __high2half(__half2 v) { return v.y; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
YAIE_INLINE __half __ushort_as_half(unsigned short bits) { return yaie_bits<__half>(bits); }
