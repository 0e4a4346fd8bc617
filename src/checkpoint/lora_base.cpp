#include "checkpoint/lora_base.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/checksum.h"
#include "base/error.h"
#include "checkpoint/checkpoint_model.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/manifest.h"

namespace lockstep {

void require_base_folder(const RunSpec& run) {
  const bool hf = !run.model_hf.empty();
  const std::string& place = hf ? run.model_hf : run.model_from;
  if (std::error_code ignored; place.empty() || std::filesystem::is_directory(place, ignored)) return;
  throw UserError(ExitCode::checkpoint,
                  fmt::format("{} is not there, the base that adapters were trained beside", place),
                  fmt::format("say where it is now: --set model.{}=FOLDER to train, --base FOLDER for eval, export and "
                              "generate",
                              hf ? "hf" : "from"));
}

void set_base(RunSpec& run, const std::string& folder) {
  const std::filesystem::path path = folder;
  std::error_code ignored;
  const bool hf =
      std::filesystem::exists(path / kHfConfigName, ignored) && !std::filesystem::exists(path / kManifestName, ignored);
  run.model_hf = hf ? folder : "";
  run.model_from = hf ? "" : folder;
}

LoraBase::LoraBase(const RunSpec& run, const std::vector<LogicalTensor>& tensors, const DamageReport& report)
    : tensors_(tensors) {
  require_base_folder(run);
  if (!run.model_hf.empty()) {
    place_ = run.model_hf;
    hf_.emplace(run.model_hf);
    const std::vector<ConstTensor> found = hf_->find(tensors_);
    for (std::size_t i = 0; i < found.size(); ++i) views_[tensors_[i].name] = found[i];
    return;
  }
  checkpoint_ = require_checkpoint(run.model_from, report);
  place_ = checkpoint_->path().string();
  if (run_of(*checkpoint_).lora)
    throw UserError(
        ExitCode::checkpoint, fmt::format("{} holds adapters of [lora] alone, not a model", place_),
        fmt::format("merge them by `lockstep export {} --out FOLDER`, and start from that by model.hf=FOLDER",
                    run.model_from));
  require_same_model(*checkpoint_, run.model);
}

std::vector<HfCompanion> LoraBase::companions() const {
  return hf_ ? read_companions(place_) : companions_of(*checkpoint_);
}

ConstTensor LoraBase::values(const LogicalTensor& tensor, Memory& memory, Buffer& room, Stream& stream) const {
  if (hf_) return views_.at(tensor.name);
  const ManifestTensor* const saved = checkpoint_->manifest().find(kWeightPart, tensor.name);
  if (!saved)
    throw UserError(ExitCode::checkpoint, fmt::format("{}: there is no weight '{}'", place_, tensor.name),
                    "name the run that the adapters were trained beside");
  room = memory.allocate(tensor.elements() * size_of(saved->dtype), Tag::workspace);
  const Tensor whole = view(room, saved->dtype, {tensor.elements()});
  const StateTensor all{
      .part = kWeightPart, .tensor = tensor, .range = flat_range(0, tensor.elements()), .live = whole};
  checkpoint_->load({&all, 1}, stream);
  return whole;
}

std::uint64_t LoraBase::part_of(const LogicalTensor& tensor, const ConstTensor& values) {
  Checksum sum;
  const std::string head = fmt::format("{} {} ", tensor.name, name_of(values.dtype()));
  sum.update(std::as_bytes(std::span(head)));
  sum.update({static_cast<const std::byte*>(values.raw()), static_cast<std::size_t>(values.bytes())});
  return sum.value();
}

std::string LoraBase::fingerprint(const std::vector<std::uint64_t>& parts) {
  return fmt::format("{:016x}", checksum(std::as_bytes(std::span(parts))));
}

std::string LoraBase::fingerprint(Memory& memory, Stream& stream) const {
  std::vector<std::uint64_t> parts;
  for (const LogicalTensor& tensor : tensors_) {
    Buffer room;
    parts.push_back(part_of(tensor, values(tensor, memory, room, stream)));
  }
  return fingerprint(parts);
}

void LoraBase::require(const std::string& found, const std::string& wanted, const std::string& of) const {
  if (found == wanted || wanted.empty()) return;
  throw UserError(
      ExitCode::usage,
      fmt::format("{}: the adapters were trained beside another base than {}: fingerprint {}, not {}", of, place_,
                  wanted, found),
      "put that base back, or say where it is: --set model.hf=FOLDER or model.from=RUN to train, --base FOLDER for "
      "eval, export and generate");
}

}  // namespace lockstep
