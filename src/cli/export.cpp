#include "cli/export.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint_model.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/peft_folder.h"
#include "cli/base_option.h"
#include "cli/choice_option.h"
#include "cli/usage_error.h"
#include "data/byte_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "spec/model/projections.h"
#include "spec/run/run_toml.h"
#include "telemetry/number_text.h"
#include "tensor/cpu/stream.h"
#include "train/merged_lora.h"

namespace lockstep {

namespace {

struct ExportSettings {
  std::string from, out, base;
  std::optional<DType> dtype;
  bool replace = false;
  bool adapter = false;
};

// Of a model that began with a tokenizer alone: what ends a text, for whoever generates with it.
void add_generation_config(const Checkpoint& checkpoint, std::vector<HfCompanion>& companions) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(companions, name, &HfCompanion::name) != companions.end();
  };
  const auto kept = [&](std::string_view name) {
    return checkpoint.path() / (std::string(kCompanionPrefix) + std::string(name));
  };
  if (has(kGenerationConfigName) || !has("tokenizer.json")) return;
  const Tokenizer tokenizer = Tokenizer::load(kept("tokenizer.json"));
  const auto end = find_end_of_document(tokenizer, kept("tokenizer_config.json"));
  if (!end) return;
  const nlohmann::ordered_json config{{"eos_token_id", *end}};
  companions.push_back({std::string(kGenerationConfigName), config.dump(2) + "\n"});
}

// A tensor of the checkpoint, or of the model that its adapters make, on the host.
struct Exported {
  std::vector<Buffer> buffers;
  std::vector<HfTensor> tensors;
};

Exported read_weights(const Checkpoint& checkpoint, Memory& memory, Stream& stream) {
  Exported all;
  std::vector<StateTensor> wanted;
  for (const ManifestTensor& t : checkpoint.manifest().tensors) {
    if (t.part != kWeightPart) continue;
    const LogicalTensor logical{t.name, t.shape};
    all.buffers.push_back(memory.allocate(logical.elements() * size_of(t.dtype), Tag::workspace));
    const Tensor values = view(all.buffers.back(), t.dtype, {logical.elements()});
    wanted.push_back({.part = t.part, .tensor = logical, .range = flat_range(0, logical.elements()), .live = values});
    all.tensors.push_back({logical, values});
  }
  checkpoint.load(wanted, stream);
  return all;
}

int run_export(const ExportSettings& s) {
  const Checkpoint checkpoint = require_checkpoint(s.from, [](const auto& path, const std::string& reason) {
    fmt::print(stderr, "lockstep: skipping {}: {}\n", path.string(), reason);
  });
  RunSpec run = run_of(checkpoint);
  if (!s.base.empty()) {
    if (!run.lora || s.adapter) refuse("--base is of adapters that are merged", "leave it out");
    set_base(run, s.base);
  }
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  cpu::Stream stream(*memory, 1);
  if (s.adapter && !run.lora)
    throw UserError(ExitCode::usage, fmt::format("{} has no adapters: its run trained the whole model", s.from),
                    "leave --adapter out");
  const std::string base = run.model_hf.empty() ? run.model_from : run.model_hf;
  if (std::error_code ignored; run.lora && std::filesystem::equivalent(s.out, base, ignored))
    throw UserError(ExitCode::usage, fmt::format("{} holds the weights that these adapters were trained beside", s.out),
                    "name another folder");
  std::optional<MergedLora> merged;
  if (run.lora && !s.adapter) merged.emplace(checkpoint, run, stream);
  Exported all;
  if (merged) {
    for (const LogicalTensor& tensor : merged->tensors()) {
      Buffer room;
      all.tensors.push_back({tensor, merged->values(tensor, *memory, room)});
      all.buffers.push_back(std::move(room));
    }
  } else {
    all = read_weights(checkpoint, *memory, stream);
  }
  const std::vector<HfTensor>& tensors = all.tensors;
  const DType dtype = s.dtype.value_or(tensors.back().values.dtype());
  if (s.adapter) {
    export_peft({.folder = s.out,
                 .spec = run.model,
                 .lora = run.lora,
                 .base = base,
                 .dtype = dtype,
                 .replace = s.replace,
                 .companions = companions_of(checkpoint),
                 .bytes = speaks_bytes(run.data)},
                tensors);
    fmt::print("{} tensors of adapters, {} parameters in {}, of step {}: {}\n", tensors.size(),
               grouped_digits(lora_parameters(run.model, run.lora)), name_of(dtype), checkpoint.progress().step, s.out);
    return static_cast<int>(ExitCode::done);
  }
  std::vector<HfCompanion> companions = companions_of(checkpoint);
  add_generation_config(checkpoint, companions);
  export_hf({.folder = s.out,
             .spec = run.model,
             .dtype = dtype,
             .replace = s.replace,
             .companions = std::move(companions),
             .bytes = speaks_bytes(run.data)},
            tensors);
  fmt::print("{} tensors, {} parameters in {}, of step {}: {}\n", tensors.size(),
             grouped_digits(parameter_count(run.model)), name_of(dtype), checkpoint.progress().step, s.out);
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_export(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<ExportSettings>();
  CLI::App* command = app.add_subcommand("export", "Write a checkpoint as a Hugging Face folder");
  command->footer(
      "The folder holds config.json and model.safetensors (shards with an index above 5 GB), as transformers loads "
      "it.\nOf a model that came from a Hugging Face folder (model.hf) it also holds that folder's tokenizer files, "
      "and "
      "in\nconfig.json its token ids, whether or not that folder is still there; of one with data.tokenizer, that "
      "tokenizer's files\nand a generation_config.json.\n"
      "Adapters ([lora]) are merged into the weights that they were trained beside, which must be where they were; "
      "with\n"
      "--adapter they are written alone.\n\n"
      "Example: lockstep export runs/demo --out my-model --dtype bf16");
  command->add_option("from", s->from, "Run folder (its newest whole checkpoint) or checkpoint")
      ->required()
      ->type_name("DIR");
  add_base_option(*command, s->base);
  command->add_option("--out", s->out, "Folder to write")->required()->type_name("DIR");
  add_choice_option<std::optional<DType>, DType>(
      *command, "--dtype", s->dtype,
      {{"fp64", DType::f64}, {"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}}, "What to store",
      "as the checkpoint has it");
  command->add_flag("--adapter", s->adapter, "Of a run with [lora]: write the adapters alone, as PEFT loads them");
  command->add_flag("--replace", s->replace, "Also replace a folder that is no earlier export");
  command->callback([s, &chosen] { chosen = [s] { return run_export(*s); }; });
}

}  // namespace lockstep
