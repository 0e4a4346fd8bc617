#include "support/naive_model.h"

#include <cmath>

#include "base/philox.h"
#include "support/reference_random.h"

namespace lockstep::tests {

namespace {

// y[out] = W x (+ b); W is (out, in), or (in, out) for GPT-2.
Values project(const ModelSpec& s, const Weights& w, const std::string& name, bool bias, const Values& x) {
  const Values& m = w(name + ".weight");
  const std::size_t in = x.size(), out = m.size() / in;
  Values y(out, 0.0);
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t i = 0; i < in; ++i) y[o] += x[i] * (s.in_out_weights ? m[i * out + o] : m[o * in + i]);
  if (bias)
    for (std::size_t o = 0; o < out; ++o) y[o] += w(name + ".bias")[o];
  return y;
}

Values rms(const Values& x, const Values& weight, double eps) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + eps) * weight[i];
  return y;
}

Values normed(const ModelSpec& s, const Weights& w, const std::string& name, const Values& x) {
  if (s.norm == NormKind::rms) return rms(x, w(name + ".weight"), s.norm_eps);
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / n;
  for (const double v : x) variance += (v - mean) * (v - mean) / n;
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(variance + s.norm_eps) * w(name + ".weight")[i] + w(name + ".bias")[i];
  return y;
}

double frequency(const ModelSpec& s, std::int64_t pair) {
  const double f = 1 / std::pow(s.rope_theta, 2.0 * static_cast<double>(pair) / static_cast<double>(s.head_width));
  if (!s.rope_scaling) return f;
  const auto& r = *s.rope_scaling;
  const double turns = static_cast<double>(r.original_positions) * f / (2 * M_PI);  // over the original context
  if (turns > r.high_freq_factor) return f;
  if (turns < r.low_freq_factor) return f / r.factor;
  const double smooth = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return f / r.factor * (1 - smooth) + f * smooth;
}

void turn(const ModelSpec& s, double* head, int position) {
  const std::int64_t half = s.head_width / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle = position * frequency(s, i), a = head[i], b = head[i + half];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + half] = b * std::cos(angle) + a * std::sin(angle);
  }
}

struct Head {
  Values q, k, v;
};

// Queries, keys and values of one token, all heads, positions applied.
Head heads_of(const ModelSpec& s, const Weights& w, const std::string& at, const Values& x, int position) {
  const std::int64_t D = s.head_width, q = s.heads * D, kv = s.kv_heads * D;
  Head h;
  if (s.family == Family::gpt2) {
    const Values all = project(s, w, at + "attn.c_attn", true, x);
    h = {{all.begin(), all.begin() + q}, {all.begin() + q, all.begin() + q + kv}, {all.begin() + q + kv, all.end()}};
    return h;
  }
  h.q = project(s, w, at + "self_attn.q_proj", s.qkv_bias, x);
  h.k = project(s, w, at + "self_attn.k_proj", s.qkv_bias, x);
  h.v = project(s, w, at + "self_attn.v_proj", s.qkv_bias, x);
  const auto each = [&](Values& values, const char* norm) {
    for (std::int64_t first = 0; first < std::ssize(values); first += D) {
      if (s.qk_norm) {
        const Values one = rms({values.begin() + first, values.begin() + first + D}, w(at + norm), s.norm_eps);
        std::copy(one.begin(), one.end(), values.begin() + first);
      }
      turn(s, values.data() + first, position);
    }
  };
  each(h.q, "self_attn.q_norm.weight");
  each(h.k, "self_attn.k_norm.weight");
  return h;
}

// Dropout at the sites of a model; without `at`, none.
class Sites {
 public:
  Sites(const ModelSpec& spec, const NaiveDropout* at) : spec_(spec), at_(at) {}

  // Of the branch or embedding of token t.
  void drop(Values& x, const std::string& site, std::size_t t) const {
    if (!at_ || spec_.dropout == 0) return;
    for (std::size_t c = 0; c < x.size(); ++c)
      x[c] *= reference::keeps(key(site), spec_.dropout, at_->sample, static_cast<std::int64_t>(t),
                               static_cast<std::int64_t>(c))
                  ? 1 / (1 - spec_.dropout)
                  : 0;
  }
  // What the probability of key j is multiplied with, in head h of query t.
  double of_probability(const std::string& projection, std::int64_t h, std::size_t t, std::size_t j) const {
    const double p = spec_.attention_dropout;
    if (!at_ || p == 0) return 1;
    return reference::keeps_probability(key(projection + "/probabilities"), p, at_->sample, h,
                                        static_cast<std::int64_t>(t), static_cast<std::int64_t>(j))
               ? 1 / (1 - p)
               : 0;
  }

 private:
  std::uint64_t key(const std::string& site) const {
    return random_key(random_key(at_->seed, "dropout") + static_cast<std::uint64_t>(at_->batch), site);
  }
  const ModelSpec& spec_;
  const NaiveDropout* at_;
};

Values attend(const ModelSpec& s, const std::vector<Head>& tokens, std::size_t t, const std::string& projection,
              const Sites& sites) {
  const std::int64_t D = s.head_width, group = s.heads / s.kv_heads;
  Values y(s.heads * D, 0.0);
  for (std::int64_t h = 0; h < s.heads; ++h) {
    Values weight(t + 1);
    double total = 0;
    for (std::size_t j = 0; j <= t; ++j) {
      double score = 0;
      for (std::int64_t d = 0; d < D; ++d) score += tokens[t].q[h * D + d] * tokens[j].k[h / group * D + d];
      total += weight[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
    }
    for (std::size_t j = 0; j <= t; ++j) {
      const double share = weight[j] / total * sites.of_probability(projection, h, t, j);
      for (std::int64_t d = 0; d < D; ++d) y[h * D + d] += share * tokens[j].v[h / group * D + d];
    }
  }
  return y;
}

Values feed_forward(const ModelSpec& s, const Weights& w, const std::string& at, const Values& x) {
  if (s.mlp == MlpKind::gelu) {
    Values inner = project(s, w, at + "mlp.c_fc", true, x);
    for (double& v : inner) v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    return project(s, w, at + "mlp.c_proj", true, inner);
  }
  Values gate = project(s, w, at + "mlp.gate_proj", s.mlp_bias, x);
  const Values up = project(s, w, at + "mlp.up_proj", s.mlp_bias, x);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return project(s, w, at + "mlp.down_proj", s.mlp_bias, gate);
}

void add_to(Values& x, const Values& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

Values naive_logits(const ModelSpec& s, const Weights& w, const std::vector<int>& tokens, const NaiveDropout* dropout) {
  const Sites sites(s, dropout);
  const bool gpt2 = s.family == Family::gpt2;
  const Values& table = w(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight");
  std::vector<Values> x;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    x.emplace_back(table.begin() + tokens[t] * s.width, table.begin() + (tokens[t] + 1) * s.width);
    if (gpt2)
      for (std::int64_t i = 0; i < s.width; ++i) x[t][i] += w("transformer.wpe.weight")[t * s.width + i];
    sites.drop(x[t], "embedding", t);
  }
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string at = (gpt2 ? "transformer.h." : "model.layers.") + std::to_string(layer) + ".";
    std::vector<Head> heads;
    for (std::size_t t = 0; t < x.size(); ++t)
      heads.push_back(
          heads_of(s, w, at, normed(s, w, at + (gpt2 ? "ln_1" : "input_layernorm"), x[t]), static_cast<int>(t)));
    const std::string out = at + (gpt2 ? "attn.c_proj" : "self_attn.o_proj");
    const std::string down = at + (gpt2 ? "mlp.c_proj" : "mlp.down_proj");
    for (std::size_t t = 0; t < x.size(); ++t) {
      Values branch = project(s, w, out, s.out_bias, attend(s, heads, t, out, sites));
      sites.drop(branch, out, t);
      add_to(x[t], branch);
    }
    for (std::size_t t = 0; t < x.size(); ++t) {
      Values branch = feed_forward(s, w, at, normed(s, w, at + (gpt2 ? "ln_2" : "post_attention_layernorm"), x[t]));
      sites.drop(branch, down, t);
      add_to(x[t], branch);
    }
  }
  const Values& head = s.tied ? table : w("lm_head.weight");
  Values logits;
  for (const Values& row : x) {
    const Values n = normed(s, w, gpt2 ? "transformer.ln_f" : "model.norm", row);
    for (std::int64_t v = 0; v < s.vocabulary; ++v) {
      double sum = 0;
      for (std::int64_t i = 0; i < s.width; ++i) sum += head[v * s.width + i] * n[i];
      logits.push_back(sum);
    }
  }
  return logits;
}

Values naive_losses(const Values& logits, const std::vector<int>& targets) {
  const std::size_t V = logits.size() / targets.size();
  Values losses(targets.size(), 0.0);
  for (std::size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    double total = 0;
    for (std::size_t v = 0; v < V; ++v) total += std::exp(logits[t * V + v]);
    losses[t] = std::log(total) - logits[t * V + static_cast<std::size_t>(targets[t])];
  }
  return losses;
}

}  // namespace lockstep::tests
