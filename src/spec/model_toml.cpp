#include "spec/model_toml.h"

#include <toml++/toml.h>

#include <algorithm>
#include <vector>

#include "spec/text_input.h"

namespace lockstep {
namespace {

// A preset is under 1 KiB. The bound is low because the parser's tables nest as deep as a dotted key is long, and are
// destroyed by recursion.
constexpr std::size_t kTextLimit = 16 << 10;

// The one list of keys: reading, writing and the hints for misspelt keys all walk it. The table goes last, since TOML
// would take any key written after it as its own.
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
  visit("rope_scaling", spec.rope_scaling);
}

template <class Scaling, class Visitor>
void visit_scaling(Scaling& scaling, Visitor&& visit) {
  visit("factor", scaling.factor);
  visit("low_freq_factor", scaling.low_freq_factor);
  visit("high_freq_factor", scaling.high_freq_factor);
  visit("original_positions", scaling.original_positions);
}

std::string_view name_of(NormKind kind) { return kind == NormKind::rms ? "rms" : "layer"; }
std::string_view name_of(MlpKind kind) { return kind == MlpKind::swiglu ? "swiglu" : "gelu"; }
std::string_view name_of(PositionKind kind) { return kind == PositionKind::rope ? "rope" : "learned"; }
constexpr std::array<NormKind, 2> values_of(NormKind) { return {NormKind::rms, NormKind::layer}; }
constexpr std::array<MlpKind, 2> values_of(MlpKind) { return {MlpKind::swiglu, MlpKind::gelu}; }
constexpr std::array<PositionKind, 2> values_of(PositionKind) { return {PositionKind::rope, PositionKind::learned}; }
constexpr auto values_of(Family) { return kFamilies; }

// Reads the keys of one table into fields; a field whose key is absent keeps its value.
class TableReader {
 public:
  TableReader(const toml::table& table, std::string title, const std::string& where)
      : table_(table), title_(std::move(title)), where_(where) {}

  void operator()(std::string_view key, std::int64_t& field) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const auto value = node->value_exact<std::int64_t>();
    if (!value || *value < 1 || *value > kMaxSize) wrong(*node, key, "a whole number from 1 to 2^40");
    field = *value;
  }
  void operator()(std::string_view key, double& field) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    if (!node->is_number()) wrong(*node, key, "a number");
    field = *node->value<double>();
  }
  void operator()(std::string_view key, bool& field) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    if (!node->is_boolean()) wrong(*node, key, "true or false");
    field = *node->value_exact<bool>();
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(std::string_view key, Enum& field) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    const auto word = node->value_exact<std::string_view>();
    std::string choices;
    for (const Enum choice : values_of(Enum{})) {
      if (word && name_of(choice) == *word) {
        field = choice;
        return;
      }
      choices += fmt::format("{}\"{}\"", choices.empty() ? "one of " : ", ", name_of(choice));
    }
    wrong(*node, key, choices);
  }
  void operator()(std::string_view key, std::optional<RopeScaling>& field) const {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return;
    if (!node->is_table()) wrong(*node, key, "a table");
    const TableReader inner(*node->as_table(), title_ + "." + std::string(key), where_);
    std::vector<std::string_view> keys;
    RopeScaling scaling;
    visit_scaling(scaling, [&keys](std::string_view name, auto&) { keys.push_back(name); });
    inner.refuse_unknown(keys);
    for (const std::string_view name : keys) inner.require(name);
    visit_scaling(scaling, inner);
    field = scaling;
  }

  void require(std::string_view key) const {
    if (!table_.contains(key)) {
      throw UserError(ExitCode::usage, fmt::format("{}: [{}] has no '{}'", where_, title_, key), "add it");
    }
  }
  void refuse_unknown(const std::vector<std::string_view>& known) const {
    for (const auto& [key, node] : table_) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      throw UserError(
          ExitCode::usage,
          fmt::format("{}:{}: unknown key {} in [{}]", where_, key.source().begin.line, quote_text(key.str()), title_),
          fmt::format("the nearest known key is '{}'", nearest_word(key.str(), known)));
    }
  }

 private:
  [[noreturn]] void wrong(const toml::node& node, std::string_view key, std::string_view expected) const {
    throw UserError(ExitCode::usage,
                    fmt::format("{}:{}: '{}' in [{}] has a value that is not allowed", where_, node.source().begin.line,
                                key, title_),
                    fmt::format("it must be {}", expected));
  }

  const toml::table& table_;
  std::string title_;
  const std::string& where_;
};

class Writer {
 public:
  void operator()(std::string_view key, std::int64_t value) { line(key, fmt::format("{}", value)); }
  void operator()(std::string_view key, bool value) { line(key, value ? "true" : "false"); }
  void operator()(std::string_view key, double value) {
    std::string text = fmt::format("{}", value);  // the shortest form that reads back to the same bits
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    line(key, text);
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(std::string_view key, Enum value) { line(key, fmt::format("\"{}\"", name_of(value))); }
  void operator()(std::string_view key, const std::optional<RopeScaling>& value) {
    if (!value) return;
    text_ += fmt::format("\n[model.{}]\n", key);
    visit_scaling(*value, *this);
  }
  std::string text() && { return std::move(text_); }

 private:
  void line(std::string_view key, std::string_view value) { text_ += fmt::format("{} = {}\n", key, value); }
  std::string text_ = "[model]\n";
};

toml::table parse_toml(std::string_view text, const std::string& where) {
  if (text.size() > kTextLimit) {
    throw UserError(ExitCode::usage, fmt::format("{}: larger than {} bytes", where, kTextLimit),
                    "a model's description is far smaller; check that it is the file you meant");
  }
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw UserError(ExitCode::usage,
                    fmt::format("{}:{}: not valid TOML at column {}", where, error.source().begin.line,
                                error.source().begin.column),
                    "mend that line");
  }
}

ModelSpec read_fields(const toml::table& model, const std::string& where) {
  const TableReader reader(model, "model", where);
  std::vector<std::string_view> keys;
  ModelSpec spec;
  visit_fields(spec, [&keys](std::string_view key, auto&) { keys.push_back(key); });
  reader.refuse_unknown(keys);
  for (const auto* key : {"family", "vocabulary", "layers", "width", "heads", "ffn_width", "max_positions"}) {
    reader.require(key);
  }
  reader("family", spec.family);
  spec = family_defaults(spec.family);
  visit_fields(spec, reader);
  if (!model.contains("kv_heads")) spec.kv_heads = spec.heads;
  if (!model.contains("head_width")) {
    if (spec.width % spec.heads != 0) {
      throw UserError(ExitCode::usage,
                      fmt::format("{}: width ({}) is not a multiple of heads ({})", where, spec.width, spec.heads),
                      "change one of the two or state head_width");
    }
    spec.head_width = spec.width / spec.heads;
  }
  validate(spec, where, ExitCode::usage);
  return spec;
}

}  // namespace

ModelSpec parse_model_toml(std::string_view text, const std::string& where) {
  const toml::table document = parse_toml(text, where);
  TableReader(document, "top level", where).refuse_unknown({"model"});
  const toml::table* model = document["model"].as_table();
  if (model == nullptr) throw UserError(ExitCode::usage, where + ": has no table [model]", "add it");
  return read_fields(*model, where);
}

ModelSpec read_model_toml(const std::filesystem::path& file) {
  return parse_model_toml(read_text_file(file, kTextLimit, ExitCode::usage), file.string());
}

std::string to_toml(const ModelSpec& spec) {
  Writer writer;
  visit_fields(spec, writer);
  return std::move(writer).text();
}

}  // namespace lockstep
