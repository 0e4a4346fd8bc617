#include "plan/timed_tensors.h"

#include <algorithm>
#include <chrono>

#include "base/median.h"
#include "kernels/quantize.h"
#include "kernels/random.h"
#include "parallel/zero_shards.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"
#include "train/training_run.h"
#include "train/tuning.h"

namespace lockstep {

TimedTensors::TimedTensors(const RunSpec& run, Kind kind)
    : dtype_(storage_types(run.precision).compute),
      runs_on_(device_of(run)),
      memory_(make_memory(kind == Kind::real ? runs_on_ : Device::meta, ledger_)),
      stream_(make_stream(*memory_, threads_of(run), runs_on_)) {
  tune_products(run, *stream_);
}

Tensor TimedTensors::room(const Shape& shape, DType dtype) {
  buffers_.push_back(memory_->allocate(std::max<std::int64_t>(1, shape.elements() * size_of(dtype)), Tag::workspace));
  return view(buffers_.back(), dtype, shape);
}

Tensor TimedTensors::tensor(const Shape& shape, DType dtype, double std) {
  const Tensor t = room(shape, dtype);
  init_normal({.x = t.reshape({shape.elements()}), .key = buffers_.size(), .std = std}, *stream_);
  return t;
}

Tensor TimedTensors::zeros(const Shape& shape, DType dtype) {
  const Tensor t = room(shape, dtype);
  const std::vector<std::int64_t> host(static_cast<std::size_t>(shape.elements()));
  LOCKSTEP_CHECK(size_of(dtype) == 8, "zeros of {}", name_of(dtype));
  upload(t, host.data(), *stream_);
  return t;
}

Tensor TimedTensors::indices(const Shape& shape, std::int64_t below) {
  const Tensor t = room(shape, DType::i32);
  std::vector<std::int32_t> host(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<std::int32_t>(i * 2654435761u % static_cast<std::uint64_t>(below));
  upload(t, host.data(), *stream_);
  return t;
}

Tensor TimedTensors::doubles(const std::vector<double>& values) {
  const Tensor t = room({std::ssize(values)}, DType::f64);
  upload(t, values.data(), *stream_);
  return t;
}

TimedTensors::Quantized TimedTensors::fp8(const Shape& shape, DType dtype) {
  const Tensor x = tensor(shape, DType::bf16), largest = room({1}, DType::f32);
  const Quantized made{.q = room(shape, dtype), .scale = room({1}, DType::f32)};
  amax({.amax = largest, .x = x}, *stream_);
  quantize({.q = made.q, .scale = made.scale, .x = x, .amax = largest}, *stream_);
  return made;
}

double seconds_of(const std::function<void()>& work, Stream& stream) {
  const auto start = std::chrono::steady_clock::now();
  work();
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double seconds_of_one(const std::function<void()>& call, Stream& stream) {
  constexpr double kEnough = 0.2, kLong = 5e-3;  // seconds
  int together = 1;
  if (stream.runs_ahead()) {
    seconds_of(call, stream);  // code is loaded and clocks rise
    together = seconds_of(call, stream) < kLong ? 20 : 4;
  }
  std::vector<double> times;
  for (double spent = 0; times.size() < 5 || (spent < kEnough && times.size() < 1000);) {
    const double taken = seconds_of(
        [&] {
          for (int i = 0; i < together; ++i) call();
        },
        stream);
    spent += taken;
    times.push_back(taken / together);
  }
  return median(std::move(times));
}

}  // namespace lockstep
