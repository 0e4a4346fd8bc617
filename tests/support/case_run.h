// A kernel case made real on a device: operands allocated, filled and guarded, run, and read back.
//
// Every operand lies in a buffer of its own between guards. Inputs, with whatever lies around and between their rows,
// must come out of a run as they went in; around outputs nothing may be written, and outputs begin as NaN, so that an
// element that is not written cannot pass. What lies beside an input is NaN too, so that reading there shows.
#pragma once
#include <cstddef>
#include <memory>

#include "support/kernel_cases.h"
#include "tensor/memory.h"

namespace lockstep::tests {

class CaseRun {
 public:
  // The memory, and the stream of the last run, outlive this.
  CaseRun(const KernelCase& kernel, Memory& memory, std::uint64_t seed = 1);

  const KernelCase& kernel() const { return kernel_; }
  std::span<const Tensor> tensors() const { return tensors_; }
  // The operands as they were before the run, in double.
  const std::vector<HostTensor>& given() const { return given_; }
  // Overwrites an operand's elements (rounded to its type), for the next run.
  void set(int operand, const std::vector<double>& value);

  void run(Stream& stream);  // outputs are poisoned and inouts restored first

  HostTensor read(int operand) const;               // as it is now
  std::vector<std::byte> bytes(int operand) const;  // the whole buffer, guards and gaps included
  std::vector<std::byte> outputs() const;           // the bytes of all buffers a run may write
  // "" when nothing was written but output elements, or a sentence about what was.
  std::string trespass() const;

 private:
  KernelCase kernel_;
  Stream* stream_ = nullptr;  // of the last run
  std::vector<Buffer> buffers_;
  std::vector<Tensor> tensors_;
  std::vector<HostTensor> given_;
  std::vector<std::vector<std::byte>> images_;  // each buffer as it was before the run
};

}  // namespace lockstep::tests
