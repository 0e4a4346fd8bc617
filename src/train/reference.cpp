#include "train/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "checkpoint/hf_tensors.h"
#include "comm/threads/run_ranks.h"
#include "spec/layout/updates.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"
#include "train/host_values.h"
#include "train/key_bias.h"
#include "train/reference_data.h"
#include "train/replica.h"
#include "train/shared_gpu.h"

namespace lockstep {

bool ReferenceReport::ok() const { return std::ranges::all_of(items, &ReferenceItem::ok); }

namespace {

// How close is close enough, by precision; docs/numerics.md derives them.
struct Tolerances {
  double logits, gradients, losses, norms, weights;
  double key_bias_gradient, key_bias;  // absolute
};

Tolerances tolerances(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return {5e-6, 5e-6, 5e-7, 1e-6, 2e-5, 1e-9, 5e-3};
    case Precision::fp32:
      return {2e-5, 1e-4, 1e-5, 1e-4, 1e-4, 1e-7, 5e-3};
    case Precision::bf16:
    case Precision::fp8:  // of no reference
      break;
    case Precision::fp16:
      return {4e-3, 5e-5, 7e-4, 5e-3, 2e-2, 1e-4, 3e-2};
  }
  return {2e-2, 1e-3, 5e-3, 2e-2, 5e-2, 1e-3, 3e-2};
}

double norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// The largest of |a - b|; NaN if any is.
double largest(const std::vector<double>& a, const std::vector<double>& b, bool relative) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]) / (relative ? std::abs(b[i]) : 1);
    if (std::isnan(error)) return error;
    worst = std::max(worst, error);
  }
  return worst;
}

// One tensor under comparison. What of it is noise is judged by itself, absolutely.
struct Compared {
  std::string name;
  std::vector<double> mine, theirs;
  bool absolute = false;
};

std::vector<Compared> split_key_bias(const ModelSpec& spec, Compared whole) {
  const auto noise = key_bias_of(spec, whole.name);
  if (!noise) return {std::move(whole)};
  Compared keys{whole.name + "[key]", {}, {}, true};
  for (auto [from, to] : {std::pair{&whole.mine, &keys.mine}, std::pair{&whole.theirs, &keys.theirs}}) {
    to->assign(from->begin() + noise->first, from->begin() + noise->second);
    from->erase(from->begin() + noise->first, from->begin() + noise->second);
  }
  return {std::move(whole), std::move(keys)};
}

void compare(std::vector<ReferenceItem>& items, const std::vector<Compared>& all, double tolerance, double absolute,
             bool by_cosine) {
  double squares = 0;
  for (const Compared& c : all) squares += norm(c.theirs) * norm(c.theirs);
  const double floor = 1e-6 * std::sqrt(squares);
  for (const Compared& c : all) {
    if (c.absolute) {
      items.push_back({c.name, largest(c.mine, c.theirs, false), absolute});
    } else if (by_cosine && norm(c.theirs) > floor) {
      const double product = std::inner_product(c.mine.begin(), c.mine.end(), c.theirs.begin(), 0.0);
      items.push_back({c.name, 1 - product / (norm(c.mine) * norm(c.theirs)), tolerance});
    } else {
      items.push_back({c.name, distance(c.mine, c.theirs) / std::max(norm(c.theirs), floor), tolerance});
    }
  }
}

// One rank's part of the proof. Rank 0 writes the report.
void verify_rank(const ReferenceData& data, const ReferenceOptions& options, Communicator& ranks,
                 ReferenceReport& report) {
  const Tolerances limits = tolerances(options.precision);
  const bool narrow = options.precision == Precision::bf16 || options.precision == Precision::fp16;
  const std::int64_t T = data.T(), V = data.spec().vocabulary;

  Ledger ledger;
  const auto memory = make_memory(options.device, ledger);
  const auto owned_stream = make_stream(*memory, options.threads);
  Stream& stream = *owned_stream;
  const Replica::Options replica_options{.spec = data.spec(),
                                         .B = data.B(),
                                         .T = T,
                                         .layout = options.layout,
                                         .precision = options.precision,
                                         .optimizer = data.optimizer()};
  const bool on_gpu = options.device == Device::cuda;
  const auto shared = on_gpu && ranks.size() > 1 ? on_shared_gpu(ranks, stream) : nullptr;
  const auto owned_replica =
      ranks.size() == 1 ? std::make_unique<Replica>(replica_options, *memory, stream)
                        : std::make_unique<Replica>(replica_options, Replica::Ranks{shared ? *shared : ranks, ranks},
                                                    *memory, stream);
  Replica& replica = *owned_replica;
  const std::vector<Replica::Named> tensors = replica.tensors();
  replica.load(find_hf_tensors(data.weights(), logical_tensors(replica.model())));

  // The tensors are whole on the first ranks, which may hold a part each.
  const auto compare_all = [&](const std::string& prefix, Tensor Replica::Named::*which, double tolerance,
                               double absolute, bool by_cosine) {
    const LayoutSpec& layout = options.layout;
    const bool holds = rank_updates(layout, ranks.rank()) && state_copy(layout, ranks.rank()) == 0;
    std::vector<Compared> all;
    auto own = tensors.begin();  // those of this rank's stage, in the same order
    for (const LogicalTensor& tensor : logical_tensors(replica.model())) {
      std::vector<double> whole(static_cast<std::size_t>(tensor.elements()));
      if (own != tensors.end() && own->tensor.name == tensor.name) {
        if (holds && own->counted && !own->runs.empty()) own->put(to_doubles((*own).*which, stream), whole);
        if (which == &Replica::Named::gradient)
          for (double& value : whole) value = std::ldexp(value, -replica.loss_scale().exponent);
        ++own;
      }
      if (layout.shards() > 1 || layout.tp > 1 || layout.pp > 1 || layout.servers > 0)
        sum_over(ranks, std::span(whole));
      if (ranks.rank() != 0) continue;
      for (Compared& c : split_key_bias(data.spec(), {prefix + tensor.name, std::move(whole),
                                                      data.expected(prefix + tensor.name, tensor.shape)}))
        all.push_back(std::move(c));
    }
    if (ranks.rank() == 0) compare(report.items, all, tolerance, absolute, by_cosine);
  };
  // This rank's rows of the logits compared with those of the reference, over all ranks.
  const auto compare_logits = [&](std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
    const Share own = share_of(data.B(), options.layout, options.layout.dp_rank(ranks.rank()));
    std::vector<double> logits(own.count * T * V);
    replica.evaluate(tokens, targets, logits);
    const std::vector<double> all = data.expected("logits", {data.B(), T, V});
    const auto first = all.begin() + own.first * T * V;
    double error = std::pow(distance(logits, {first, first + std::ssize(logits)}), 2);
    // All of them have the same.
    if (ranks.rank() % options.layout.line() > 0) error = 0;
    sum_over(ranks, error);
    if (ranks.rank() == 0) report.items.push_back({"logits", std::sqrt(error) / norm(all), limits.logits});
  };

  // Step 0 in the open: logits and gradients; then all steps.
  std::vector<double> losses, norms;
  for (std::int64_t step = 0; step < data.steps(); ++step) {
    const ReferenceData::StepTokens batch = data.tokens(step);
    const auto given = [&, share = replica.given()](const std::vector<std::int32_t>& whole) {
      return std::span(whole).subspan(share.first * T, share.count * T);
    };
    const auto tokens = given(batch.tokens), targets = given(batch.targets);
    if (step == 0) compare_logits(tokens, targets);
    replica.compute_gradients(tokens, targets);
    if (step == 0) compare_all("grad.", &Replica::Named::gradient, limits.gradients, limits.key_bias_gradient, narrow);
    const Replica::Result result = replica.apply_gradients();
    losses.push_back(result.loss);
    norms.push_back(result.norm);
  }
  if (ranks.rank() == 0) {
    report.items.push_back({"losses", largest(losses, data.losses(), false), limits.losses});
    report.items.push_back({"grad_norms", largest(norms, data.norms(), true), limits.norms});
  }
  compare_all("final.", &Replica::Named::master, limits.weights, limits.key_bias, false);
}

}  // namespace

ReferenceReport verify_reference(const std::filesystem::path& folder, const ReferenceOptions& options) {
  const ReferenceData data(folder);
  const LayoutFault fail = [&](std::string_view, const std::string& problem, const std::string& remedy) {
    throw UserError(ExitCode::usage, folder.string() + ": " + problem, remedy);
  };
  check_layout(data.B(), options.layout, fail);
  check_model_layout(data.spec(), data.T(), options.layout, fail);
  ReferenceReport report{options.precision, data.steps(), {}};
  run_ranks(static_cast<int>(options.layout.ranks()),
            [&](std::unique_ptr<Communicator> ranks) { verify_rank(data, options, *ranks, report); });
  return report;
}

}  // namespace lockstep
