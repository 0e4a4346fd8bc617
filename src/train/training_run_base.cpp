// The frozen weights of a run with LoRA (checkpoint/lora_base.h).
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "checkpoint/all_or_none.h"
#include "checkpoint/finite.h"
#include "checkpoint/lora_base.h"
#include "tensor/cpu/stream.h"
#include "train/host_values.h"
#include "train/training_run.h"

namespace lockstep {

// Rank 0 looks for the checkpoint and verifies it; the others open what it has found. Each makes a part of the
// fingerprint.
void TrainingRun::load_base(const std::function<void(const std::string&)>& note) {
  const bool meta = stream_->device() == Device::meta;
  if (!has_base() || meta || std::exchange(base_is_there_, true)) return;
  const std::vector<LogicalTensor> names = frozen_tensors(replica_->model());
  std::optional<LoraBase> base;
  if (is_first_rank()) {
    base.emplace(spec_, names, [&](const std::filesystem::path& path, const std::string& reason) {
      if (note) note(fmt::format("skipping {}: {}", path.string(), reason));
    });
    if (base->checkpoint()) spec_.model_from = base->place();
  }
  if (ranks_) share_text(*ranks_, spec_.model_from, 0);
  if (!base) base.emplace(spec_, names);
  Ledger ledger;
  const std::unique_ptr<Memory> room_memory = make_memory(Device::cpu, ledger);
  cpu::Stream copying(*room_memory, 1);
  const std::vector<std::string> told = all_or_none(ranks_, [&]() -> std::string {
    std::vector<std::uint64_t> mine;
    for (auto i = static_cast<std::size_t>(rank()); i < names.size(); i += static_cast<std::size_t>(size())) {
      Buffer room;
      const ConstTensor values = base->values(names[i], *room_memory, room, copying);
      mine.push_back(LoraBase::part_of(names[i], values));
      if (const auto bad = first_not_finite(values))
        throw UserError(ExitCode::bad_input_file,
                        fmt::format("{}: tensor '{}' is not finite (element {} is {})", base->place(), names[i].name,
                                    bad->element, bad->value),
                        "fetch or export the model again");
    }
    std::string bytes(mine.size() * sizeof(std::uint64_t), '\0');
    std::memcpy(bytes.data(), mine.data(), bytes.size());
    return bytes;
  });
  std::vector<std::uint64_t> parts(names.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t from = i % told.size(), at = i / told.size();
    std::memcpy(&parts[i], told[from].data() + at * sizeof(std::uint64_t), sizeof(std::uint64_t));
  }
  const std::string found = LoraBase::fingerprint(parts);
  base->require(found, spec_.lora.base, "lora.base");
  spec_.lora.base = found;
  if (base->checkpoint()) {
    base->checkpoint()->load(replica_->frozen(), *stream_);
  } else {
    std::vector<ConstTensor> values;
    Buffer unused;
    for (const LogicalTensor& name : names) values.push_back(base->values(name, *room_memory, unused, copying));
    replica_->load_frozen(values);
  }
  if (is_first_rank() && saves()) keep_companions(base->companions());
}

}  // namespace lockstep
