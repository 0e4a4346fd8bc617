#include "spec/model/model_toml.h"

#include "base/error.h"
#include "spec/text/toml_fields.h"

namespace lockstep {

// Found by their arguments, so not in the unnamed namespace.
static std::string_view name_of(NormKind kind) { return kind == NormKind::rms ? "rms" : "layer"; }
static std::string_view name_of(MlpKind kind) { return kind == MlpKind::swiglu ? "swiglu" : "gelu"; }
static std::string_view name_of(PositionKind kind) { return kind == PositionKind::rope ? "rope" : "learned"; }
static constexpr std::array<NormKind, 2> values_of(NormKind) { return {NormKind::rms, NormKind::layer}; }
static constexpr std::array<MlpKind, 2> values_of(MlpKind) { return {MlpKind::swiglu, MlpKind::gelu}; }
static constexpr std::array<PositionKind, 2> values_of(PositionKind) {
  return {PositionKind::rope, PositionKind::learned};
}
static constexpr auto values_of(Family) { return kFamilies; }

namespace {

// A preset is under 1 KiB.
constexpr std::size_t kModelTextLimit = 16 << 10;

// The one list of keys: reading, writing and the hints for misspelt keys all walk it. The table rope_scaling is apart:
// TOML would take any key written after it as its own.
template <class Spec, class Visitor>
void visit_fields(Spec& spec, Visitor&& visit) {
  visit("family", spec.family);
  visit("vocabulary", spec.vocabulary);
  visit("layers", spec.layers);
  visit("width", spec.width);
  visit("heads", spec.heads);
  visit("kv_heads", spec.kv_heads);
  visit("head_width", spec.head_width);
  visit("ffn_width", spec.ffn_width);
  visit("max_positions", spec.max_positions);
  visit("norm", spec.norm);
  visit("norm_eps", spec.norm_eps);
  visit("mlp", spec.mlp);
  visit("positions", spec.positions);
  visit("rope_theta", spec.rope_theta);
  visit("tied", spec.tied);
  visit("qkv_bias", spec.qkv_bias);
  visit("out_bias", spec.out_bias);
  visit("mlp_bias", spec.mlp_bias);
  visit("qk_norm", spec.qk_norm);
  visit("in_out_weights", spec.in_out_weights);
  visit("dropout", spec.dropout);
  visit("attention_dropout", spec.attention_dropout);
  visit("init_std", spec.init_std);
}

template <class Scaling, class Visitor>
void visit_scaling(Scaling& scaling, Visitor&& visit) {
  visit("factor", scaling.factor);
  visit("low_freq_factor", scaling.low_freq_factor);
  visit("high_freq_factor", scaling.high_freq_factor);
  visit("original_positions", scaling.original_positions);
}

void read_scaling(const TomlTable& model, std::optional<RopeScaling>& field) {
  const TomlTable table = model.table("rope_scaling");
  if (!table.present()) return;
  RopeScaling scaling;
  std::vector<std::string_view> keys;
  visit_scaling(scaling, [&keys](std::string_view name, auto&) { keys.push_back(name); });
  table.refuse_unknown(keys);
  if (!field) {  // a partial one changes what is there, and means nothing where nothing is
    for (const std::string_view key : keys) table.require(key);
  }
  if (field) scaling = *field;
  visit_scaling(scaling, table);
  field = scaling;
}

std::int64_t width_per_head(const TomlTable& model, const ModelSpec& spec) {
  if (spec.width % spec.heads != 0) {
    model.refuse("width", fmt::format("width ({}) is not a multiple of heads ({})", spec.width, spec.heads),
                 "change one of the two or state head_width");
  }
  return spec.width / spec.heads;
}

}  // namespace

std::vector<std::string_view> model_keys() {
  std::vector<std::string_view> keys;
  ModelSpec spec;
  visit_fields(spec, [&keys](std::string_view key, auto&) { keys.push_back(key); });
  keys.push_back("rope_scaling");
  return keys;
}

ModelSpec read_model_fields(const TomlTable& model) {
  for (const auto* key : {"family", "vocabulary", "layers", "width", "heads", "ffn_width", "max_positions"}) {
    model.require(key);
  }
  ModelSpec spec;
  model("family", spec.family);
  spec = family_defaults(spec.family);
  visit_fields(spec, model);
  read_scaling(model, spec.rope_scaling);
  if (!model.has("kv_heads")) spec.kv_heads = spec.heads;
  if (!model.has("head_width")) spec.head_width = width_per_head(model, spec);
  validate(spec, model.place_of_all(), ExitCode::usage);
  return spec;
}

ModelSpec read_model_fields(const TomlTable& model, const ModelSpec& over) {
  ModelSpec spec = over;
  visit_fields(spec, model);
  read_scaling(model, spec.rope_scaling);
  if (!model.has("kv_heads") && over.kv_heads == over.heads) spec.kv_heads = spec.heads;
  if (!model.has("head_width") && over.head_width * over.heads == over.width) {
    spec.head_width = width_per_head(model, spec);
  }
  validate(spec, model.place_of_all(), ExitCode::usage);
  return spec;
}

void write_model_fields(const ModelSpec& spec, TomlWriter& writer) {
  visit_fields(spec, writer);
  if (!spec.rope_scaling) return;
  writer.table("model.rope_scaling");
  visit_scaling(*spec.rope_scaling, writer);
}

ModelSpec parse_model_toml(std::string_view text, const std::string& where) {
  const TomlDocument document(text, where, kModelTextLimit);
  document.top().refuse_unknown(std::array<std::string_view, 1>{"model"});
  const TomlTable model = document.top().table("model");
  if (!model.present()) throw UserError(ExitCode::usage, where + ": has no table [model]", "add it");
  model.refuse_unknown(model_keys());
  return read_model_fields(model);
}

std::string to_toml(const ModelSpec& spec) {
  TomlWriter writer;
  writer.table("model");
  write_model_fields(spec, writer);
  return std::move(writer).text();
}

}  // namespace lockstep
