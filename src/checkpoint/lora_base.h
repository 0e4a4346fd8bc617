// The base of a run with LoRA: the weights that adapters are trained beside, which its checkpoints do not hold.
//
// A base is a Hugging Face folder or a checkpoint of another run. Its fingerprint is one number of all its tensors, by
// name, of their types and bytes as they are in the files: the same wherever they are, and however a checkpoint was
// sharded. A checkpoint of adapters says where the base was and its fingerprint ([lora] base of its run file).
//
// Failure: UserError naming the folder: `checkpoint` where it is not there or holds adapters alone, those of
// hf_folder.h and checkpoint_reader.h, and `usage` where it is another base than it was.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf_folder.h"
#include "spec/run/run_spec.h"
#include "tensor/memory.h"

namespace lockstep {

// UserError (checkpoint) where the base that a run of adapters names is not there, in words that say so.
void require_base_folder(const RunSpec& run);
// Makes that folder the run's base: model.hf of a Hugging Face folder, else model.from.
void set_base(RunSpec& run, const std::string& folder);

class LoraBase {
 public:
  // That of model.hf or model.from, of which one is given; it holds these tensors and, in a folder, no others.
  LoraBase(const RunSpec& run, const std::vector<LogicalTensor>& tensors, const DamageReport& report = {});

  // The folder, or the one checkpoint that it came to.
  const std::string& place() const { return place_; }
  const Checkpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  std::vector<HfCompanion> companions() const;
  // A whole tensor on the host, of the type in the file; what a checkpoint has is read into the buffer.
  ConstTensor values(const LogicalTensor& tensor, Memory& memory, Buffer& room, Stream& stream) const;

  // One tensor's part of the fingerprint, and the fingerprint of all parts, in the order of the names.
  static std::uint64_t part_of(const LogicalTensor& tensor, const ConstTensor& values);
  static std::string fingerprint(const std::vector<std::uint64_t>& parts);
  // Of all tensors, read one after the other.
  std::string fingerprint(Memory& memory, Stream& stream) const;
  // Unless this is the base that adapters at `of` were trained beside.
  void require(const std::string& found, const std::string& wanted, const std::string& of) const;

 private:
  std::string place_;
  std::vector<LogicalTensor> tensors_;
  std::optional<HfFolder> hf_;
  std::map<std::string, ConstTensor, std::less<>> views_;  // into its files
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace lockstep
