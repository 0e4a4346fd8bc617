#include "comm/processes/wide_sum.h"

#include <algorithm>
#include <cstring>

#include "kernels/elementwise.h"

namespace lockstep::processes {

namespace {
constexpr std::int64_t kBlock = 2048;  // elements

void fill_minus_zeros(char* to, DType dtype) {
  if (dtype == DType::f64) std::fill_n(reinterpret_cast<double*>(to), kBlock, -0.0);
  if (dtype == DType::f32) std::fill_n(reinterpret_cast<float*>(to), kBlock, -0.0f);
  if (!is_float(dtype)) std::fill_n(to, kBlock * size_of(dtype), char{0});
}
}  // namespace

void WideSum::run(const WideSumArgs& args) {
  const DType wide = wide_of(args.dtype);
  const std::int64_t each = size_of(args.dtype), wide_each = size_of(wide), block_bytes = kBlock * wide_each;
  scratch_.resize(static_cast<std::size_t>(block_bytes) * (args.ins.size() + 2));
  char* const zeros = scratch_.data();
  char* const result = zeros + block_bytes;
  fill_minus_zeros(zeros, wide);
  std::vector<ConstTensor> ins(args.ins.size());
  for (std::int64_t at = 0; at < args.count; at += kBlock) {
    const std::int64_t n = std::min(kBlock, args.count - at);
    for (std::size_t i = 0; i < ins.size(); ++i) {
      const Summand& in = args.ins[i];
      if (!in.data) {
        ins[i] = args.reduction == Reduction::max ? ins[i - 1] : ConstTensor(zeros, wide, Device::cpu, {n});
      } else if (in.wide || wide == args.dtype) {
        ins[i] = ConstTensor(static_cast<const char*>(in.data) + at * wide_each, wide, Device::cpu, {n});
      } else {
        const Tensor y(result + block_bytes * static_cast<std::int64_t>(i + 1), wide, Device::cpu, {n});
        cpu::cast({y, ConstTensor(static_cast<const char*>(in.data) + at * each, args.dtype, Device::cpu, {n})},
                  stream_);
        ins[i] = y;
      }
    }
    const Tensor sum(result, wide, Device::cpu, {n});
    cpu::tree_sum_range({.outs = {&sum, 1}, .ins = ins, .joins = args.joins, .reduction = args.reduction}, 0, n);
    const bool as_it_is = args.wide || wide == args.dtype;
    const std::int64_t out_each = as_it_is ? wide_each : each;
    for (void* out : args.outs) {
      char* to = static_cast<char*>(out) + at * out_each;
      if (as_it_is)
        std::memcpy(to, result, static_cast<std::size_t>(n * out_each));
      else
        cpu::cast({Tensor(to, args.dtype, Device::cpu, {n}), sum}, stream_);
    }
  }
}

}  // namespace lockstep::processes
