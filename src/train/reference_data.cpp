#include "train/reference_data.h"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "spec/model/hf_config.h"
#include "spec/text/json_fields.h"
#include "spec/text/text_input.h"

namespace lockstep {

ReferenceData::ReferenceData(const std::filesystem::path& folder)
    : folder_(folder),
      spec_(read_hf_config(folder / "config.json")),
      weights_(folder / "model.safetensors"),
      expected_(folder / "expected.safetensors") {
  read_run();
  const SafetensorsEntry* entry = expected_.find("tokens");
  if (!entry || entry->dtype != "I32" || entry->shape.size() != 3)
    refuse("expected.safetensors", "no int32 tensor 'tokens' of [steps, batch, length + 1]");
  B_ = entry->shape[1];
  T_ = entry->shape[2] - 1;
  if (entry->shape[0] != steps_ || B_ < 1 || T_ < 1)
    refuse("expected.safetensors",
           fmt::format("'tokens' is [{}], run.json has {} steps", fmt::join(entry->shape, ", "), steps_));
  if (T_ > spec_.max_positions)
    refuse("expected.safetensors",
           fmt::format("sequences of {} tokens, the model has {} positions", T_, spec_.max_positions));
  const ConstTensor all = expected_.tensor("tokens");
  const std::int32_t* tokens = all.data<std::int32_t>();
  for (std::int64_t i = 0; i < all.elements(); ++i)
    if (tokens[i] < 0 || tokens[i] >= spec_.vocabulary)
      refuse("expected.safetensors",
             fmt::format("token {} at place {}, the vocabulary has {}", tokens[i], i, spec_.vocabulary));
}

void ReferenceData::refuse(const std::string& file, const std::string& problem) const {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", (folder_ / file).string(), problem),
                  "a reference folder is described by lockstep verify --help");
}

void ReferenceData::read_run() {
  const std::filesystem::path file = folder_ / "run.json";
  const nlohmann::json run = parse_json_object(read_text_file(file, 1 << 20, ExitCode::bad_input_file), file.string());
  JsonFields fields(run, file.string());
  steps_ = fields.required_size("steps");
  const auto number = [&](const char* key) {
    const auto value = fields.number(key);
    if (!value || !std::isfinite(*value) || *value < 0)
      refuse("run.json", fmt::format("'{}' must be a number from 0 on", key));
    return *value;
  };
  optimizer_ = {.kind = OptimizerKind::adamw,
                .learning_rate = number("lr"),
                .beta1 = number("beta1"),
                .beta2 = number("beta2"),
                .eps = number("eps"),
                .weight_decay = number("weight_decay"),
                .clip = number("clip")};
  const auto list = [&](const char* key) {
    std::vector<double> values;
    const auto found = run.find(key);
    if (found != run.end() && found->is_array())
      for (const auto& value : *found)
        if (value.is_number()) values.push_back(value.get<double>());
    if (std::ssize(values) != steps_)
      refuse("run.json", fmt::format("'{}' must be a list of {} numbers, one per step", key, steps_));
    return values;
  };
  losses_ = list("losses");
  norms_ = list("grad_norms");
}

ReferenceData::StepTokens ReferenceData::tokens(std::int64_t step) const {
  const std::int32_t* from = expected_.tensor("tokens").data<std::int32_t>() + step * B_ * (T_ + 1);
  StepTokens result;
  for (std::int64_t b = 0; b < B_; ++b, from += T_ + 1) {
    result.tokens.insert(result.tokens.end(), from, from + T_);
    result.targets.insert(result.targets.end(), from + 1, from + 1 + T_);
  }
  return result;
}

std::vector<double> ReferenceData::expected(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const SafetensorsEntry* entry = expected_.find(name);
  if (!entry) refuse("expected.safetensors", fmt::format("tensor '{}' is missing", name));
  if (entry->shape != shape)
    refuse("expected.safetensors", fmt::format("tensor '{}' is [{}], expected [{}]", name,
                                               fmt::join(entry->shape, ", "), fmt::join(shape, ", ")));
  const ConstTensor t = expected_.tensor(name);
  std::vector<double> values(t.elements());
  if (t.dtype() == DType::f32)
    std::copy_n(t.data<float>(), values.size(), values.begin());
  else if (t.dtype() == DType::f64)
    std::copy_n(t.data<double>(), values.size(), values.begin());
  else
    refuse("expected.safetensors", fmt::format("tensor '{}' holds {}, expected F32 or F64", name, entry->dtype));
  return values;
}

}  // namespace lockstep
