#include "spec/model/model_spec.h"

#include "base/integers.h"

namespace lockstep {
namespace {

// A running sum of products that remembers whether it ever left 63 bits.
class Count {
 public:
  void add(std::int64_t a, std::int64_t b = 1, std::int64_t c = 1) {
    const auto ab = checked_mul(a, b);
    const auto abc = ab ? checked_mul(*ab, c) : std::nullopt;
    total_ = total_ && abc ? checked_add(*total_, *abc) : std::nullopt;
  }
  std::optional<std::int64_t> total() const { return total_; }

 private:
  std::optional<std::int64_t> total_ = 0;
};

std::optional<std::int64_t> block_elements(const ModelSpec& spec) {
  const std::int64_t C = spec.width, H = spec.heads, K = spec.kv_heads, D = spec.head_width, F = spec.ffn_width;
  const std::int64_t norm_vectors = spec.norm == NormKind::layer ? 2 : 1;
  const std::int64_t ffn_inputs = spec.mlp == MlpKind::swiglu ? 2 : 1;  // projections from C to F
  Count count;
  count.add(C, H, D);
  for (int kv = 0; kv < 2; ++kv) count.add(C, K, D);
  count.add(H, D, C);
  count.add(ffn_inputs + 1, C, F);
  count.add(2, norm_vectors, C);
  if (spec.qkv_bias) {
    count.add(H, D);
    count.add(2, K, D);
  }
  if (spec.out_bias) count.add(C);
  if (spec.mlp_bias) {
    count.add(ffn_inputs, F);
    count.add(C);
  }
  if (spec.qk_norm) count.add(2, D);
  return count.total();
}

std::optional<std::int64_t> count_elements(const ModelSpec& spec) {
  const auto block = block_elements(spec);
  if (!block) return std::nullopt;
  Count count;
  count.add(spec.layers, *block);
  count.add(spec.vocabulary, spec.width, spec.tied ? 1 : 2);
  if (spec.positions == PositionKind::learned) count.add(spec.max_positions, spec.width);
  count.add(spec.norm == NormKind::layer ? 2 : 1, spec.width);
  return count.total();
}

// Throws for one source of values, so that the checks below read as a list.
class ModelChecker {
 public:
  ModelChecker(const ModelSpec& spec, const std::string& where, ExitCode code)
      : spec_(spec), where_(where), code_(code) {}

  void sizes() const {
    size("vocabulary", spec_.vocabulary, kMaxIndex);
    size("layers", spec_.layers, kMaxLayers);
    size("width", spec_.width, kMaxSize);
    size("heads", spec_.heads, kMaxSize);
    size("kv_heads", spec_.kv_heads, kMaxSize);
    size("head_width", spec_.head_width, kMaxHeadSize);
    size("ffn_width", spec_.ffn_width, kMaxSize);
    size("max_positions", spec_.max_positions, kMaxIndex);
    if (spec_.heads % spec_.kv_heads != 0) {
      fail(fmt::format("heads ({}) is not a multiple of kv_heads ({})", spec_.heads, spec_.kv_heads),
           "each key/value head serves the same number of heads, so change one of the two");
    }
    if (spec_.positions == PositionKind::rope && spec_.head_width % 2 != 0) {
      fail(fmt::format("head_width ({}) is odd", spec_.head_width),
           "rotary positions turn pairs of elements, so use an even head_width");
    }
    const auto count = count_elements(spec_);
    if (!count || *count > kMaxParameters) {
      fail("the sizes make a model of more than 2^50 parameters", "check for a size with digits too many");
    }
  }

  // Comparisons are written so that a NaN fails them.
  void numbers() const {
    number("norm_eps", spec_.norm_eps, spec_.norm_eps > 0 && spec_.norm_eps < 1, "above 0 and below 1");
    number("rope_theta", spec_.rope_theta, spec_.rope_theta >= 1 && spec_.rope_theta <= 1e15, "from 1 to 1e15");
    number("dropout", spec_.dropout, spec_.dropout >= 0 && spec_.dropout < 1, "at least 0 and below 1");
    number("attention_dropout", spec_.attention_dropout, spec_.attention_dropout >= 0 && spec_.attention_dropout < 1,
           "at least 0 and below 1");
    number("init_std", spec_.init_std, spec_.init_std >= 0 && spec_.init_std <= 1, "from 0 to 1");
    if (!spec_.rope_scaling) return;
    const RopeScaling& r = *spec_.rope_scaling;
    number("rope_scaling.factor", r.factor, r.factor >= 1 && r.factor <= 1e6, "from 1 to 1e6");
    number("rope_scaling.low_freq_factor", r.low_freq_factor, r.low_freq_factor > 0 && r.low_freq_factor <= 1e6,
           "above 0 and at most 1e6");
    number("rope_scaling.high_freq_factor", r.high_freq_factor,
           r.high_freq_factor > r.low_freq_factor && r.high_freq_factor <= 1e6,
           "above low_freq_factor and at most 1e6");
    size("rope_scaling.original_positions", r.original_positions, kMaxSize);
  }

  // A family's weights are stored under its own names, which exist for its own structure only.
  void structure() const {
    const ModelSpec own = family_defaults(spec_.family);
    fixed("norm", spec_.norm == own.norm);
    fixed("mlp", spec_.mlp == own.mlp);
    fixed("positions", spec_.positions == own.positions);
    fixed("qk_norm", spec_.qk_norm == own.qk_norm);
    fixed("in_out_weights", spec_.in_out_weights == own.in_out_weights);
    if (spec_.rope_scaling && spec_.positions != PositionKind::rope) {
      fail("rope_scaling is given but positions are learned", "remove rope_scaling");
    }
    // One switch serves all four projections in Llama and Qwen3; the other families leave no choice.
    if (spec_.family == Family::llama || spec_.family == Family::qwen3) {
      if (spec_.qkv_bias != spec_.out_bias) {
        fail(fmt::format("qkv_bias and out_bias differ, which {} has no form for", name_of(spec_.family)),
             "set both alike, or use family qwen2 for biases on queries, keys and values alone");
      }
    } else {
      fixed("qkv_bias", spec_.qkv_bias == own.qkv_bias);
      fixed("out_bias", spec_.out_bias == own.out_bias);
    }
    if (spec_.family != Family::llama) fixed("mlp_bias", spec_.mlp_bias == own.mlp_bias);
    if (spec_.family == Family::gpt2) {
      if (spec_.kv_heads != spec_.heads) {
        fail(fmt::format("kv_heads ({}) is not heads ({}), and gpt2 has no grouped heads", spec_.kv_heads, spec_.heads),
             "set them alike or use another family");
      }
      const auto all_heads = checked_mul(spec_.heads, spec_.head_width);
      if (!all_heads || *all_heads != spec_.width) {
        fail(fmt::format("heads ({}) times head_width ({}) is not width ({}), as gpt2 needs", spec_.heads,
                         spec_.head_width, spec_.width),
             "change one of the three");
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const {
    throw UserError(code_, where_ + ": " + problem, remedy);
  }
  void size(std::string_view name, std::int64_t value, std::int64_t most) const {
    if (value < 1 || value > most) {
      fail(fmt::format("{} is {}", name, value), fmt::format("it must be from 1 to {}", most));
    }
  }
  void number(std::string_view name, double value, bool good, std::string_view range) const {
    if (!good) fail(fmt::format("{} is {}", name, value), fmt::format("it must be {}", range));
  }
  void fixed(std::string_view name, bool same) const {
    if (!same) {
      fail(fmt::format("{} is not what family {} has", name, name_of(spec_.family)),
           fmt::format("leave {} out, or choose another family ({})", name, family_names()));
    }
  }

  const ModelSpec& spec_;
  const std::string& where_;
  ExitCode code_;
};

}  // namespace

std::string_view name_of(Family family) {
  switch (family) {
    case Family::llama:
      return "llama";
    case Family::mistral:
      return "mistral";
    case Family::qwen2:
      return "qwen2";
    case Family::qwen3:
      return "qwen3";
    case Family::gpt2:
      return "gpt2";
  }
  LOCKSTEP_CHECK(false, "no such family: {}", static_cast<int>(family));
}

std::optional<Family> family_named(std::string_view name) {
  for (const Family family : kFamilies) {
    if (name_of(family) == name) return family;
  }
  return std::nullopt;
}

std::string family_names() {
  std::string names;
  for (const Family family : kFamilies) names += (names.empty() ? "" : ", ") + std::string(name_of(family));
  return names;
}

ModelSpec family_defaults(Family family) {
  ModelSpec spec;
  spec.family = family;
  spec.norm_eps = 1e-6;
  switch (family) {
    case Family::llama:
      spec.max_positions = 2048;
      break;
    case Family::mistral:
      spec.max_positions = 131072;
      break;
    case Family::qwen2:
      spec.max_positions = 32768;
      spec.qkv_bias = true;
      break;
    case Family::qwen3:
      spec.max_positions = 32768;
      spec.qk_norm = true;
      break;
    case Family::gpt2:
      spec.max_positions = 1024;
      spec.norm = NormKind::layer;
      spec.norm_eps = 1e-5;
      spec.mlp = MlpKind::gelu;
      spec.positions = PositionKind::learned;
      spec.tied = spec.qkv_bias = spec.out_bias = spec.mlp_bias = spec.in_out_weights = true;
      spec.dropout = spec.attention_dropout = 0.1;
      break;
  }
  return spec;
}

std::int64_t parameter_count(const ModelSpec& spec) {
  const auto count = count_elements(spec);
  LOCKSTEP_CHECK(count.has_value(), "the sizes of this model were never validated: their product overflows");
  return *count;
}

void validate(const ModelSpec& spec, const std::string& where, ExitCode code) {
  const ModelChecker check(spec, where, code);
  check.sizes();
  check.numbers();
  check.structure();
}

}  // namespace lockstep
