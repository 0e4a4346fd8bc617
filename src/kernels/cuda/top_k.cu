// A radix select, as on the cpu: digit by digit, from the highest, the bits of the k-th largest magnitude are found by
// counting how many elements have each value of the digit. Then tiles count what they have above it and equal to it,
// and put theirs where all tiles before them end. All of these are sums of integers, so nothing depends on which thread
// comes first.
#include "kernels/top_k.h"

#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/magnitudes.cuh"
#include "kernels/cuda/sums_before.cuh"

namespace lockstep::cuda {

namespace {

constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits, kTile = 16 * kThreads;

// In the scratch: what is known of the k-th largest.
struct Kth {
  unsigned long long bits;
  Count left;  // of those that are not above it, as many belong to the k
};

// Of residuals what was added to them already, else x.
template <class S>
struct Numbers {
  const S* x;
  Compute<S>* residual;
  std::int64_t n;
  __device__ Compute<S> operator[](std::int64_t i) const { return residual ? residual[i] : widen(x[i]); }
};

template <class S>
__global__ void __launch_bounds__(kThreads) add_to_residual(Numbers<S> v) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < v.n;
       i += std::int64_t{gridDim.x} * kThreads)
    v.residual[i] += widen(v.x[i]);
}

// Of elements whose higher bits are those found so far; `digits` are zeros before.
template <class S>
__global__ void __launch_bounds__(kThreads)
    count_digits(unsigned* digits, const Kth* kth, Numbers<S> v, int shift, int bits) {
  using Bits = Magnitude<Compute<S>>;
  __shared__ unsigned own[kDigits];
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kThreads) own[d] = 0;
  __syncthreads();
  const bool all = shift + bits == 8 * static_cast<int>(sizeof(Bits));
  const int known = all ? 0 : shift + bits;
  const Bits found = all ? Bits(0) : static_cast<Bits>(kth->bits);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < v.n;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Bits m = magnitude_of(v[i]);
    if (all || (m >> known) == (found >> known)) atomicAdd(&own[(m >> shift) & ((Bits(1) << bits) - 1)], 1u);
  }
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kThreads)
    if (own[d] > 0) atomicAdd(&digits[d], own[d]);
}

// One block. `first_of`: all of the k are sought, this being the first digit; 0: as kth says. Leaves zeros.
__global__ void __launch_bounds__(kThreads) take_digit(unsigned* digits, Kth* kth, int shift, Count first_of) {
  constexpr int kEach = kDigits / kThreads;
  __shared__ unsigned own[kDigits];
  __shared__ unsigned sums[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  unsigned sum = 0;
  for (int d = thread * kEach; d < (thread + 1) * kEach; ++d) {
    own[d] = digits[d];
    digits[d] = 0;
    sum += own[d];
  }
  sums[thread] = sum;
  __syncthreads();
  if (thread > 0) return;
  Kth found = first_of > 0 ? Kth{0, first_of} : *kth;
  int group = kThreads - 1;
  for (; group > 0 && sums[group] < found.left; --group) found.left -= sums[group];
  int d = (group + 1) * kEach - 1;
  for (; d > 0 && own[d] < found.left; --d) found.left -= own[d];
  found.bits |= static_cast<unsigned long long>(d) << shift;
  *kth = found;
}

// How many are above the k-th in the high half, and how many are equal to it in the low one: each fewer than 2^31.
template <class S>
__device__ Count standing(const Numbers<S>& v, std::int64_t i, const Kth& kth) {
  if (i >= v.n) return 0;
  const unsigned long long m = magnitude_of(v[i]);
  return static_cast<Count>(m > kth.bits) << 32 | static_cast<Count>(m == kth.bits);
}

template <class S>
__global__ void __launch_bounds__(kThreads) count_tiles(Count* tiles, std::int64_t count, const Kth* at, Numbers<S> v) {
  const Kth kth = *at;
  for (std::int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    Count own = 0;
    for (int i = static_cast<int>(threadIdx.x); i < kTile; i += kThreads) own += standing(v, tile * kTile + i, kth);
    own = block_sum(own);
    if (threadIdx.x == 0) tiles[tile] = own;
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    choose(S* values, std::int32_t* indices, std::int64_t k, std::int64_t place, const Count* tiles, std::int64_t count,
           const Kth* at, Numbers<S> v) {
  using A = Compute<S>;
  const Kth kth = *at;
  for (std::int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    Count before = tiles[tile];
    for (int first = 0; first < kTile; first += kThreads) {
      const std::int64_t i = tile * kTile + first + threadIdx.x;
      const Count own = standing(v, i, kth);
      const SumBefore sum = sum_before(own);
      const Count here = before + sum.before, aboves = here >> 32, equals = here & 0xffffffffu;
      before += sum.all;
      if (i >= v.n) continue;
      const bool takes = (own >> 32) > 0 || ((own & 0xffffffffu) > 0 && equals < kth.left);
      const A value = v[i];
      A rest = value;
      if (takes) {
        const S rounded = narrow<S>(value);
        const auto j = static_cast<std::int64_t>(aboves + (equals < kth.left ? equals : kth.left));
        if (j < k) {
          values[j] = rounded;
          indices[j] = static_cast<std::int32_t>(place + i);
        }
        rest = value - widen(rounded);
      }
      if (v.residual) v.residual[i] = isfinite(rest) ? rest : A(0);
    }
  }
}

// The scratch, one array after the other.
class Places {
 public:
  explicit Places(lockstep::Stream& stream) : at_(static_cast<std::byte*>(Stream::of(stream).scratch())) {
    end_ = at_ + kScratchBytes;
  }
  template <class T>
  T* take(std::int64_t count) {
    T* const here = reinterpret_cast<T*>(at_);
    at_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), 256);
    LOCKSTEP_CHECK(at_ <= end_, "top_k: more than the scratch holds");
    return here;
  }

 private:
  std::byte *at_, *end_;
};

template <class S>
void select(const SelectTopArgs& a, lockstep::Stream& stream) {
  using A = Compute<S>;
  const cudaStream_t queue = native(stream);
  const Numbers<S> v{a.x.data<S>(), a.residual ? a.residual.data<A>() : nullptr, a.x.elements()};
  const std::int64_t k = a.values.elements(), tiles = ceil_div(v.n, std::int64_t{kTile});
  Places places(stream);
  unsigned* const digits = places.take<unsigned>(kDigits);
  Kth* const kth = places.take<Kth>(1);
  Count* const of_tiles = places.take<Count>(tiles);
  if (v.residual) add_to_residual<S><<<blocks_for(v.n), kThreads, 0, queue>>>(v);
  check_cuda(cudaMemsetAsync(digits, 0, kDigits * sizeof *digits, queue), "cudaMemsetAsync");
  const unsigned counting = std::min(blocks_for(v.n, kTile), 1024u);
  for (int shift = 8 * static_cast<int>(sizeof(A)), top = shift; shift > 0;) {
    const int bits = std::min(kDigitBits, shift);
    const bool first = shift == top;
    shift -= bits;
    count_digits<S><<<counting, kThreads, 0, queue>>>(digits, kth, v, shift, bits);
    take_digit<<<1, kThreads, 0, queue>>>(digits, kth, shift, first ? static_cast<Count>(k) : 0);
  }
  count_tiles<S><<<blocks_for(tiles, 1), kThreads, 0, queue>>>(of_tiles, tiles, kth, v);
  sum_tiles_before<<<1, kThreads, 0, queue>>>(of_tiles, tiles);
  choose<S><<<blocks_for(tiles, 1), kThreads, 0, queue>>>(a.values.data<S>(), a.indices.data<std::int32_t>(), k,
                                                          a.first, of_tiles, tiles, kth, v);
}

// Entries of one index follow each other, in the order that they came in: the first of them adds them all.
template <class S>
__global__ void __launch_bounds__(kThreads)
    add_sorted(S* y, std::int64_t n, std::int64_t first, const std::int32_t* indices, const int* order, const S* values,
               int count) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= count || (i > 0 && indices[i - 1] == indices[i])) return;
  const std::int64_t at = indices[i] - first;
  if (at < 0 || at >= n) return;
  S sum = y[at];
  for (int j = i; j < count && indices[j] == indices[i]; ++j) sum = narrow<S>(widen(sum) + widen(values[order[j]]));
  y[at] = sum;
}

__global__ void __launch_bounds__(kThreads) number_all(int* order, int count) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < count) order[i] = i;
}

constexpr std::int64_t kSortedTogether = 1 << 20;

template <class S>
void add_some(const AddAtArgs& a, std::int64_t begin, int count, lockstep::Stream& stream) {
  const cudaStream_t queue = native(stream);
  const std::int32_t* const indices = a.indices.data<std::int32_t>() + begin;
  Places places(stream);
  int* const unsorted = places.take<int>(count);
  int* const order = places.take<int>(count);
  std::int32_t* const sorted = places.take<std::int32_t>(count);
  number_all<<<blocks_for(count), kThreads, 0, queue>>>(unsorted, count);
  std::size_t bytes = 0;
  check_cuda(cub::DeviceRadixSort::SortPairs(nullptr, bytes, indices, sorted, unsorted, order, count, 0, 32, queue),
             "add_at");
  void* const room = places.take<std::byte>(static_cast<std::int64_t>(bytes));
  check_cuda(cub::DeviceRadixSort::SortPairs(room, bytes, indices, sorted, unsorted, order, count, 0, 32, queue),
             "add_at");
  add_sorted<S><<<blocks_for(count), kThreads, 0, queue>>>(a.y.data<S>(), a.y.elements(), a.first, sorted, order,
                                                           a.values.data<S>() + begin, count);
}

}  // namespace

void select_top(const SelectTopArgs& a, lockstep::Stream& stream) {
  with_float(a.x.dtype(), [&](auto s) { select<typename decltype(s)::Type>(a, stream); });
  check_launch("select_top");
}

void add_at(const AddAtArgs& a, lockstep::Stream& stream) {
  const std::int64_t k = a.values.elements();
  with_float(a.y.dtype(), [&](auto s) {
    for (std::int64_t begin = 0; begin < k; begin += kSortedTogether)
      add_some<typename decltype(s)::Type>(a, begin, static_cast<int>(std::min(kSortedTogether, k - begin)), stream);
  });
  check_launch("add_at");
}

}  // namespace lockstep::cuda
