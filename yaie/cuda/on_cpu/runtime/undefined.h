// What -fsanitize=bounds,shift,signed-integer-overflow,integer-divide-by-zero,return,unreachable
// calls. The layouts are those of the compilers' run-time library (compiler-rt, ubsan_handlers.h).
#pragma once

#include "hooks.h"

namespace yaie {

struct SourceLocation {
    const char* file;
    uint32_t line, column;
};
struct TypeDescriptor {
    uint16_t kind, info;
    char name[1];
};
struct TypedPlace {
    SourceLocation location;
    const TypeDescriptor* type;
};

inline void put_integer(char* text, size_t size, const TypeDescriptor* type, uintptr_t value) {
    const int bits = 1 << (type->info >> 1);
    if (type->kind != 0 || bits > 64) {
        snprintf(text, size, "a value");
    } else if (type->info & 1) {
        const int unused = 64 - bits;
        snprintf(text, size, "%lld", (long long)(int64_t(uint64_t(value) << unused) >> unused));
    } else {
        snprintf(text, size, "%llu", (unsigned long long)value);
    }
}

template <typename... Arguments>
[[noreturn]] void stop_undefined(FaultKind kind, const SourceLocation& location,
                                 const char* format, Arguments... arguments) {
    Fault fault = fault_here(kind);
    fault.first.file = uint64_t(location.file);
    fault.first.line = int32_t(location.line);
    snprintf(fault.text, sizeof fault.text, format, arguments...);
    stop(fault);
}

[[noreturn]] inline void stop_overflow(const TypedPlace* place, const char* sign, uintptr_t a,
                                       uintptr_t b) {
    char left[32], right[32];
    put_integer(left, sizeof left, place->type, a);
    put_integer(right, sizeof right, place->type, b);
    stop_undefined(UNDEFINED, place->location, "%s %s %s has no value of type %s", left, sign,
                   right, place->type->name);
}

}  // namespace yaie

YAIE_HOOK void __ubsan_handle_out_of_bounds(yaie::TypedPlace* place, uintptr_t index) {
    struct Full : yaie::TypedPlace {
        const yaie::TypeDescriptor* index_type;
    };
    char text[32];
    yaie::put_integer(text, sizeof text, static_cast<Full*>(place)->index_type, index);
    yaie::stop_undefined(yaie::OUT_OF_BOUNDS, place->location, "index %s of an array of type %s",
                         text, place->type->name);
}
YAIE_HOOK void __ubsan_handle_add_overflow(yaie::TypedPlace* place, uintptr_t a, uintptr_t b) {
    yaie::stop_overflow(place, "+", a, b);
}
YAIE_HOOK void __ubsan_handle_sub_overflow(yaie::TypedPlace* place, uintptr_t a, uintptr_t b) {
    yaie::stop_overflow(place, "-", a, b);
}
YAIE_HOOK void __ubsan_handle_mul_overflow(yaie::TypedPlace* place, uintptr_t a, uintptr_t b) {
    yaie::stop_overflow(place, "*", a, b);
}
YAIE_HOOK void __ubsan_handle_negate_overflow(yaie::TypedPlace* place, uintptr_t a) {
    yaie::stop_overflow(place, "-", 0, a);
}
YAIE_HOOK void __ubsan_handle_divrem_overflow(yaie::TypedPlace* place, uintptr_t a, uintptr_t b) {
    yaie::stop_overflow(place, b ? "/" : "divided by", a, b);
}
YAIE_HOOK void __ubsan_handle_shift_out_of_bounds(yaie::TypedPlace* place, uintptr_t a,
                                                  uintptr_t b) {
    struct Full : yaie::TypedPlace {
        const yaie::TypeDescriptor* right_type;
    };
    char left[32], right[32];
    yaie::put_integer(left, sizeof left, place->type, a);
    yaie::put_integer(right, sizeof right, static_cast<Full*>(place)->right_type, b);
    yaie::stop_undefined(yaie::UNDEFINED, place->location, "%s shifted by %s bits as %s", left,
                         right, place->type->name);
}
YAIE_HOOK void __ubsan_handle_missing_return(yaie::SourceLocation* location) {
    yaie::stop_undefined(yaie::UNDEFINED, *location,
                         "the end of a function that should return a value is reached");
}
YAIE_HOOK void __ubsan_handle_builtin_unreachable(yaie::SourceLocation* location) {
    yaie::stop_undefined(yaie::UNDEFINED, *location, "a place marked unreachable is reached");
}
