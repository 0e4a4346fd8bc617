#include "checkpoint/peft_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "spec/text/json_fields.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostConfigBytes = 1 << 20;
constexpr std::string_view kWeight = ".weight";

// What a field must be where it is there; anything else makes other adapters of the same matrices.
struct Plain {
  std::string_view key;
  std::vector<nlohmann::json> values;  // null and absence always count
};
const std::vector<Plain>& plain_fields() {
  static const std::vector<Plain> fields{{"use_rslora", {false}},
                                         {"use_dora", {false}},
                                         {"use_qalora", {false}},
                                         {"lora_bias", {false}},
                                         {"bias", {"none"}},
                                         {"modules_to_save", {nlohmann::json::array()}},
                                         {"rank_pattern", {nlohmann::json::object()}},
                                         {"alpha_pattern", {nlohmann::json::object()}},
                                         {"layer_replication", {nlohmann::json::array()}},
                                         {"trainable_token_indices", {nlohmann::json::array()}}};
  return fields;
}

}  // namespace

bool holds_adapters_alone(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kAdapterConfigName, ignored) && !fs::exists(folder / "config.json", ignored);
}

PeftAdapters::PeftAdapters(const fs::path& folder) : folder_(folder), file_(folder / kAdapterWeightsName) {
  const std::string where = (folder / kAdapterConfigName).string();
  const nlohmann::json config =
      parse_json_object(read_text_file(folder / kAdapterConfigName, kMostConfigBytes, ExitCode::bad_input_file), where);
  JsonFields fields(config, where);
  const auto refuse = [&](std::string_view key) {
    fields.refuse(
        fmt::format("{} = {} is not supported", fields.name(key), quote_text(config[std::string(key)].dump())),
        "merge the adapters with the program that made them, and name the merged model");
  };
  if (fields.word("peft_type").value_or("") != "LORA")
    fields.refuse("is not of LoRA: 'peft_type' is not LORA", "name a folder of LoRA adapters");
  for (const Plain& plain : plain_fields())
    if (const auto found = config.find(plain.key);
        found != config.end() && !found->is_null() && std::ranges::find(plain.values, *found) == plain.values.end())
      refuse(plain.key);
  base_ = fields.word("base_model_name_or_path").value_or("");
  lora_.rank = fields.required_size("r");
  lora_.alpha = fields.number("lora_alpha").value_or(8);  // as PEFT has it
  if (const auto said = file_.metadata().find(kBaseFingerprint); said != file_.metadata().end())
    lora_.base = said->second;
}

std::int64_t PeftAdapters::parameters() const {
  std::int64_t all = 0;
  for (const SafetensorsEntry& entry : file_.entries()) all += LogicalTensor{entry.name, entry.shape}.elements();
  return all;
}

void PeftAdapters::require_for(const std::vector<LogicalTensor>& tensors, bool in_out_weights) const {
  const auto refuse = [&](const std::string& problem) {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", (folder_ / kAdapterWeightsName).string(), problem),
                    "name the base that the adapters were trained beside");
  };
  std::set<std::string, std::less<>> known;
  for (const LogicalTensor& weight : tensors) {
    if (weight.shape.size() != 2 || !weight.name.ends_with(kWeight)) continue;
    const std::string projection = weight.name.substr(0, weight.name.size() - kWeight.size());
    const std::int64_t out = weight.shape[in_out_weights ? 1 : 0], in = weight.shape[in_out_weights ? 0 : 1];
    const std::vector<LogicalTensor> matrices{{lora_a_name(projection), {lora_.rank, in}},
                                              {lora_b_name(projection), {out, lora_.rank}}};
    if (!file_.contains(matrices[0].name) && !file_.contains(matrices[1].name)) continue;
    for (const LogicalTensor& wanted : matrices) {
      const SafetensorsEntry* const entry = file_.find(wanted.name);
      if (!entry) refuse(fmt::format("there is no tensor '{}', and there is the other of its adapter", wanted.name));
      if (entry->shape != wanted.shape)
        refuse(fmt::format("tensor '{}' is [{}], and the base makes it [{}]", wanted.name,
                           fmt::join(entry->shape, ", "), fmt::join(wanted.shape, ", ")));
      known.insert(wanted.name);
    }
  }
  for (const SafetensorsEntry& entry : file_.entries())
    if (!known.contains(entry.name))
      refuse(fmt::format("tensor {} is of no weight of the base", quote_text(entry.name)));
  if (known.empty()) refuse("there are no adapters in it");
}

}  // namespace lockstep
