// A model from adapters, of a checkpoint or of a folder as PEFT writes it: the base's weights with the adapters merged
// in, tensor by tensor.
//
//   W + (alpha / rank) · B · A
//
// made in fp32 (fp64 of an fp64 base) and rounded once, to the type that the base has. Opening one proves that the base
// is the one that the adapters were trained beside, as far as they say which that is. What comes after is a plain
// model: it is exported and generates as any other.
//
// One thread uses it; what has the adapters outlives it. Failure: as checkpoint/lora_base.h, checkpoint_reader.h and
// peft_adapters.h.
#pragma once
#include <string>
#include <vector>

#include "checkpoint/lora_base.h"
#include "checkpoint/peft_adapters.h"

namespace lockstep {

class MergedLora {
 public:
  MergedLora(const Checkpoint& adapters, const RunSpec& run, Stream& stream);
  // `run` has the base's model and says where it is.
  MergedLora(const PeftAdapters& adapters, const RunSpec& run, Stream& stream);

  // Of the whole model, in the order of its units.
  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  // A whole tensor on the host. It stays as long as this and the buffer.
  ConstTensor values(const LogicalTensor& tensor, Memory& memory, Buffer& room) const;

 private:
  MergedLora(const Checkpoint* checkpoint, const PeftAdapters* folder, const RunSpec& run, const LoraSpec& lora,
             Stream& stream);
  bool adapts(const std::string& projection) const;
  Tensor load(const std::string& name, const std::vector<std::int64_t>& shape, DType dtype, Memory& memory,
              Buffer& room) const;

  const Checkpoint* checkpoint_;  // one of the two
  const PeftAdapters* folder_;
  ModelSpec model_;
  LoraSpec lora_;
  Stream& stream_;
  std::vector<LogicalTensor> tensors_;
  LoraBase base_;
};

}  // namespace lockstep
