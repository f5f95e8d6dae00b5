"""What `__launch_bounds__` promise is read from the source."""

from grader.kit.cuda_bounds import read_bounds

NORM = """
constexpr int64_t WARP = 32, WARPS = 16; // constexpr int WARPS = 1;
#define MOST (WARP * WARPS)
template <typename T>
__global__ void __launch_bounds__(WARP * WARPS) norm(const T* x) {}
__global__ void
    __launch_bounds__(256, 4)  // registers
    store(int* x) {}
__launch_bounds__(MOST / 2) __global__ void other(int* x) {}
__global__ void __launch_bounds__(sizeof(int) * 8) unknown(int* x) {}
__global__ void free(int* x) {}
"""


def test_bounds_are_computed_from_constants() -> None:
    assert read_bounds([], [NORM]) == {"norm": 512, "store": 256, "other": 256}


def test_constants_of_a_header_hold_unless_the_file_has_its_own() -> None:
    header = "constexpr int A = 2, B = 8;"
    bounded = "__global__ void __launch_bounds__(A * B) {}(int x) {{}}"
    files = ["constexpr int A = 4;" + bounded.format("two"), bounded.format("one")]
    assert read_bounds([header], files) == {"one": 16, "two": 32}


def test_a_constant_that_is_made_of_itself_has_no_value() -> None:
    source = "constexpr int A = A + 1; void __launch_bounds__(A) one(int x) {}"
    assert read_bounds([], [source]) == {}
