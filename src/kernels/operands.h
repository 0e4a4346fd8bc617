// Checks of a kernel's operands, made once for all devices before any of them runs.
//
// A kernel's contract names shapes and types; a call that breaks it is a bug of this program, so it throws ProgramError
// naming the op, the operand and both shapes. Every operand must live on the stream's device and have its last dim
// contiguous.
#pragma once
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

class Operands {
 public:
  Operands(const char* op, const Stream& stream) : op_(op), device_(stream.device()) {}

  // The operand is there, with this shape and type.
  Operands& have(const char* name, const ConstTensor& t, const Shape& shape, DType dtype);
  // The same where the operand may be none.
  Operands& may_have(const char* name, const ConstTensor& t, const Shape& shape, DType dtype);
  // As `have`, and without gaps between rows.
  Operands& have_flat(const char* name, const ConstTensor& t, const Shape& shape, DType dtype);
  // The operand's type is a float type.
  Operands& floats(const char* name, const ConstTensor& t);
  // A gradient of weights whose activations have this type: that type itself or its accumulator.
  Operands& gradient(const char* name, const ConstTensor& t, const Shape& shape, DType activations);

 private:
  const char* op_;
  Device device_;
};

// Whether a tensor begins at a multiple of that many bytes; one that is only counted does.
inline bool begins_at(std::uintptr_t bytes, const ConstTensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.raw()) % bytes == 0;
}

// Runs the twin of the stream's device.
template <class Args>
void dispatch(void (*on_cpu)(const Args&, Stream&), void (*on_cuda)(const Args&, Stream&),
              void (*on_meta)(const Args&, Stream&), const Args& args, Stream& stream) {
  switch (stream.device()) {
    case Device::cpu:
      return on_cpu(args, stream);
    case Device::meta:
      return on_meta(args, stream);
    case Device::cuda:
      return on_cuda(args, stream);
    case Device::disk:
      break;
  }
  LOCKSTEP_CHECK(false, "device {}", static_cast<int>(stream.device()));
}

}  // namespace lockstep
