// Tensors for kernels to be timed on, and the clock: on a device, or as shadows on meta, where the same calls are
// counted.
//
// Numbers are random normal ones in every type: the power that multipliers and memory draw, and with it a GPU's clock,
// depends on the bits. Everything is freed with the desk.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "spec/run/run_spec.h"
#include "tensor/memory.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class TimedTensors {
 public:
  enum class Kind { real, counting };
  TimedTensors(const RunSpec& run,
               Kind kind);  // on the run's device, in its compute type, with its choices of algorithms

  Tensor tensor(const Shape& shape, DType dtype, double std = 1);
  Tensor tensor(const Shape& shape) { return tensor(shape, dtype_); }
  Tensor sums(const Shape& shape) { return tensor(shape, accumulator_of(dtype_)); }
  Tensor zeros(const Shape& shape, DType dtype);           // of a type of 8 bytes
  Tensor indices(const Shape& shape, std::int64_t below);  // int32, scattered over [0, below)
  Tensor doubles(const std::vector<double>& values);       // as given
  struct Quantized {
    Tensor q, scale;
  };
  Quantized fp8(const Shape& shape, DType dtype);  // normal numbers, as kernels/quantize.h makes them
  Tensor room(const Shape& shape, DType dtype);    // of anything
  DType dtype() const { return dtype_; }
  Device runs_on() const { return runs_on_; }  // or what the counting desk stands for
  Memory& memory() { return *memory_; }
  Stream& stream() { return *stream_; }

 private:
  DType dtype_;
  Device runs_on_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
};

// Seconds from the call to the end of what it gave to the stream.
double seconds_of(const std::function<void()>& work, Stream& stream);

// The median time of one of many calls. Where the stream runs ahead, they follow each other without a pause and are
// timed together.
double seconds_of_one(const std::function<void()>& call, Stream& stream);

}  // namespace lockstep
