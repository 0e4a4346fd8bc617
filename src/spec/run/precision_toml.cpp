#include "spec/run/precision_toml.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "spec/text/toml_fields.h"
#include "spec/text/toml_keys.h"

namespace lockstep {

static constexpr std::array<Precision, 5> values_of(Precision) {
  return {Precision::fp64, Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp8};
}
static constexpr auto values_of(StateType) { return kStateTypes; }

namespace {

constexpr std::int64_t kMostGrowth = 1'000'000'000'000;
const Keys kStateKeys{"gradients", "moments", "master"};
const Keys kScaleKeys{"loss_scale", "loss_scale_growth"};

// In fp64 runs all state is fp64, and there is nothing to choose. Only fp16 runs scale the loss.
template <class Spec, class Visitor>
void visit_precision(Spec& precision, Visitor&& visit) {
  visit("compute", precision.compute);
  if (precision.compute == Precision::fp64) return;
  visit("gradients", precision.gradients);
  visit("moments", precision.moments);
  visit("master", precision.master);
  if (precision.compute != Precision::fp16) return;
  visit("loss_scale", precision.loss_scale);
  if (precision.loss_scale.kind == LossScale::Kind::dynamic)
    visit("loss_scale_growth", precision.loss_scale.growth, Whole{1, kMostGrowth});
}

// The power of two that a text is; nothing where it is no whole number that is one, or a larger one than there may be.
std::optional<int> exponent_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 1)) return std::nullopt;
  int exponent = 0;
  if (std::frexp(value, &exponent) != 0.5 || exponent - 1 > LossScale::kMost) return std::nullopt;
  return exponent - 1;
}

// A word or a number.
struct ReadPrecision {
  const TomlTable& table;
  void operator()(std::string_view key, auto& field, auto... range) const { table(key, field, range...); }
  void operator()(std::string_view key, LossScale& scale) const {
    if (!table.has(key)) return;
    std::string text = table.shown(key);
    if (text.starts_with('\'') && text.ends_with('\'')) text = text.substr(1, text.size() - 2);
    const std::optional<int> exponent = exponent_in(text);
    if (text == "none")
      scale = {};
    else if (text == "dynamic")
      scale = {.kind = LossScale::Kind::dynamic};
    else if (exponent)
      scale = {.kind = LossScale::Kind::fixed, .exponent = *exponent};
    else
      table.refuse(key, fmt::format("{} = {} is no scale", key, table.shown(key)),
                   fmt::format("use \"dynamic\", \"none\", or a power of two from 1 to {}",
                               std::int64_t{1} << LossScale::kMost));
  }
};

struct WritePrecision {
  TomlWriter& writer;
  void operator()(std::string_view key, const auto& field, auto... range) const { writer(key, field, range...); }
  void operator()(std::string_view key, const LossScale& scale) const {
    if (scale.kind == LossScale::Kind::fixed) return writer(key, std::int64_t{1} << scale.exponent);
    writer(key, std::string(scale.kind == LossScale::Kind::dynamic ? "dynamic" : "none"));
  }
};

}  // namespace

void read_precision(const TomlTable& table, PrecisionSpec& precision) {
  table.refuse_unknown(Keys{"compute"} + kStateKeys + kScaleKeys);
  table("compute", precision.compute);  // before the list, which depends on it and on the scale
  precision.loss_scale = PrecisionSpec(precision.compute).loss_scale;
  const ReadPrecision read{table};
  read("loss_scale", precision.loss_scale);
  if (precision.compute != Precision::fp16 && precision.loss_scale.kind != LossScale::Kind::none)
    table.refuse("loss_scale",
                 fmt::format("'loss_scale' does nothing with compute = \"{}\", whose range is wide enough",
                             name_of(precision.compute)),
                 "remove it, or compute in \"fp16\"");
  if (precision.loss_scale.kind != LossScale::Kind::dynamic && table.has("loss_scale_growth"))
    table.refuse("loss_scale_growth", "'loss_scale_growth' does nothing without loss_scale = \"dynamic\"", "remove it");
  visit_precision(precision, read);
  for (const std::string_view key : kStateKeys) {
    if (precision.compute != Precision::fp64 || !table.has(key)) continue;
    table.refuse(key, fmt::format("'{}' does nothing with compute = \"fp64\", which keeps all state in fp64", key),
                 "remove it, or compute in \"fp32\" or \"bf16\"");
  }
}

void write_precision(const PrecisionSpec& precision, TomlWriter& writer) {
  visit_precision(precision, WritePrecision{writer});
}

void unmake_precision_choices(TomlDocument& document) {
  const auto drop = [&](const Keys& keys) {
    for (const std::string_view key : keys) document.drop("precision", key);
  };
  if (document.set("precision", "loss_scale")) drop({"loss_scale_growth"});
  if (!document.set("precision", "compute")) return;
  const std::string compute = document.top().table("precision").shown("compute");
  if (compute == "'fp64'") drop(kStateKeys);
  if (compute != "'fp16'") drop(kScaleKeys);
}

}  // namespace lockstep
