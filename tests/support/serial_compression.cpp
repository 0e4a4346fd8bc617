#include "support/serial_compression.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>

#include "comm/meta/communicator.h"
#include "comm/single_rank.h"
#include "comm/threads/run_ranks.h"
#include "kernels/cross_entropy.h"
#include "spec/layout/shard.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "train/step_executor.h"

namespace lockstep::tests {

namespace {

using Numbers = std::vector<double>;
using Kind = Compression::Kind;
constexpr std::size_t kPlainBlock = 256;

// To 8 significant bits, ties to even: a bf16 of a size that has one.
double plain_bf16(double v) {
  if (v == 0) return 0;
  int exponent = 0;
  const double mantissa = std::frexp(v, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
}

Numbers plain_int8(const Numbers& v) {
  double largest = 0;
  for (const double x : v) largest = std::max(largest, std::abs(x));
  const double scale = static_cast<float>(static_cast<float>(largest) / 127.0f);
  Numbers sent;
  for (const double x : v)
    sent.push_back(scale > 0 ? scale * std::min(127.0, std::max(-127.0, std::nearbyint(x / scale))) : 0);
  return sent;
}

Numbers plain_onebit(const Numbers& v) {
  double sums[2] = {}, counts[2] = {};
  for (const double x : v) {
    sums[x < 0] += x;
    counts[x < 0] += 1;
  }
  Numbers sent;
  for (const double x : v) sent.push_back(static_cast<float>(sums[x < 0] / counts[x < 0]));
  return sent;
}

Numbers plain_topk(double share, const Numbers& v) {
  std::vector<std::size_t> places(v.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t a, std::size_t b) { return std::abs(v[a]) > std::abs(v[b]); });
  places.resize(static_cast<std::size_t>(std::ceil(share * static_cast<double>(v.size()))));
  Numbers sent(v.size());
  for (const std::size_t i : places) sent[i] = v[i];
  return sent;
}

// A stored parameter: which elements of all logical tensors it consists of, and where it is cut between ranks.
struct PlainParameter {
  std::vector<std::int64_t> places;  // -1: padding
  bool decays = false;
  std::vector<std::size_t> cuts;  // 0, the bounds of shards within it, its elements
};

// Of one tensor-parallel rank; without those that another one has too and answers for.
void add_parameters(const Model& model, const LayoutSpec& layout, const std::map<std::string, std::size_t>& begins,
                    std::vector<PlainParameter>& all) {
  for (int u = 0; u < model.units(); ++u) {
    const UnitLayout& unit = model.unit(u).layout();
    for (int p = 0; p < static_cast<int>(unit.parameters().size()); ++p) {
      const StoredParameter& stored = unit.parameters()[p];
      if (stored.tied || !stored.pieces.front().counted) continue;
      PlainParameter& one = all.emplace_back();
      one.places.assign(static_cast<std::size_t>(stored.elements()), -1);
      for (std::size_t piece = 0; piece < stored.pieces.size(); ++piece)
        for (const Run& run : stored.runs_of(piece))
          for (std::int64_t i = 0; i < run.elements(); ++i)
            one.places[static_cast<std::size_t>(run.here.at(i))] =
                static_cast<std::int64_t>(begins.at(stored.pieces[piece].name)) + run.there.at(i);
      one.decays = stored.shape.size() >= 2;
      const std::int64_t begin = unit.offset(p), end = begin + stored.elements();
      one.cuts.push_back(0);
      const Shard shard{.index = 0, .count = layout.shards()};
      const std::int64_t each = shard.elements(unit.owned());
      for (std::int64_t at = each; shard.count > 1 && at < end; at += each)
        if (at > begin) one.cuts.push_back(static_cast<std::size_t>(at - begin));
      one.cuts.push_back(static_cast<std::size_t>(end - begin));
    }
  }
}

// v is replaced by what is sent of it; where it is carried, the residual joins it first and takes the rest.
Numbers send(const Compression& form, bool feedback, const std::vector<std::size_t>& cuts, const Numbers& gradient,
             Numbers& residual) {
  Numbers v = gradient;
  residual.resize(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] += residual[i];
  Numbers sent;
  for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
    const Numbers part = plain_compressed(form, Numbers(v.begin() + static_cast<std::ptrdiff_t>(cuts[c]),
                                                        v.begin() + static_cast<std::ptrdiff_t>(cuts[c + 1])));
    sent.insert(sent.end(), part.begin(), part.end());
  }
  for (std::size_t i = 0; i < v.size() && feedback; ++i) residual[i] = v[i] - sent[i];
  return sent;
}

void add_to(Numbers& sum, const Numbers& one) {
  sum.resize(one.size());
  for (std::size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
}

// The units after which another stage comes, of all stages' list of units.
std::vector<bool> cuts_of(const Replica::Options& o) {
  if (!o.sync.compress_activations) return {};
  MetaDevice meta;
  meta::Communicator counted(0, static_cast<int>(o.layout.ranks()));
  const Replica replica(o, {counted, counted}, meta.memory(), meta.stream());
  const Stages& stages = replica.rank_step().shape.stages;
  std::vector<bool> cuts;
  for (int u = 0; u + 1 < replica.model().units(); ++u) cuts.push_back(stages.of(u) != stages.of(u + 1));
  return cuts;
}

// A model of one rank and one micro-batch, for some samples; at the cuts each token's row is replaced by what is sent
// of it, forward and backward.
class SerialRun {
 public:
  SerialRun(const Replica::Options& o, const std::vector<bool>& cuts)
      : setup_(o, nullptr, cpu_.memory(), cpu_.stream()), state_(setup_), executor_(setup_, state_), cuts_(cuts) {}

  RankState& state() { return state_; }
  const Model& model() const { return setup_.model; }
  Memory& memory() { return cpu_.memory(); }
  Stream& stream() { return cpu_.stream(); }

  // The sum of the losses over `valid`, and the gradient of that.
  double compute_gradients(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, double valid,
                           std::int64_t step) {
    executor_.set_batch(tokens, targets, 0);
    const Batch batch = executor_.batch().micro_batch(0, 0, true);
    *const_cast<double*>(batch.loss_scale.data<double>()) = 1 / valid;
    executor_.begin(true, step);
    for (const Action& action : executor_.gradient_actions()) {
      executor_.run(action);
      if (cuts_.empty()) continue;
      const auto cut_after = [&](int unit) {
        return unit >= 0 && unit + 1 < setup_.model.units() && cuts_[static_cast<std::size_t>(unit)];
      };
      const Between& between = setup_.model.between(action.unit);
      if (action.kind == ActionKind::forward && cut_after(action.unit)) replace(executor_.activations(0)[between.y]);
      if (action.kind == ActionKind::backward_input && cut_after(action.unit - 1))
        replace(executor_.activations(0)[between.dx]);
    }
    state_.gradients().wait();
    double loss = 0;
    for (const double one : to_doubles(batch.losses, stream())) loss += one;
    return loss / valid;
  }

 private:
  void replace(const Tensor& rows) const {
    for (std::int64_t row = 0; row < rows.dim(0); ++row) {
      double* at = rows.data<double>() + row * rows.dim(1);
      const Numbers sent = plain_compressed(setup_.options.sync.compress_activations, Numbers(at, at + rows.dim(1)));
      std::ranges::copy(sent, at);
    }
  }

  CpuDevice cpu_;
  RankSetup setup_;
  RankState state_;
  StepExecutor executor_;
  std::vector<bool> cuts_;
};

// Ranks that do not sum what they have; groups of some of them are as ever.
class Unsummed final : public Communicator {
 public:
  explicit Unsummed(Communicator& ranks)
      : Communicator(ranks.rank(), ranks.size(), ranks.name(), ranks.device()), ranks_(ranks) {}
  Started start(const Message& message) override {
    return message.op == CommOp::all_reduce ? std::make_unique<NothingPending>() : ranks_.start(message);
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    return ranks_.split(place, name);
  }

 private:
  Communicator& ranks_;
};

using Loads = std::function<void(const std::function<void(std::span<const ConstTensor>)>& load)>;
using Reads = std::function<Numbers(const std::vector<Replica::Named>& tensors, Stream& stream)>;

// Of each of a sample's context-parallel ranks the gradient of the mean loss, as far as its tokens contribute to it.
std::vector<Numbers> parts_of_gradient(const Replica::Options& o, std::span<const std::int32_t> tokens,
                                       std::span<const std::int32_t> targets, const Loads& with_weights,
                                       const Reads& read, double& loss) {
  std::vector<Numbers> parts(static_cast<std::size_t>(o.layout.cp));
  run_ranks(static_cast<int>(o.layout.cp), [&](std::unique_ptr<Communicator> group) {
    CpuDevice cpu;
    Unsummed unsummed(*group);
    Replica replica(o, {unsummed, *group}, cpu.memory(), cpu.stream());
    with_weights([&](std::span<const ConstTensor> values) { replica.load(values); });
    const double mean = replica.compute_gradients(tokens, targets);
    parts[static_cast<std::size_t>(group->rank())] = read(replica.tensors(), cpu.stream());
    if (group->rank() == 0) loss = mean;
  });
  return parts;
}

}  // namespace

Numbers plain_compressed(const Compression& form, const Numbers& v) {
  if (form.kind == Kind::topk) return plain_topk(form.share, v);
  Numbers sent;
  for (std::size_t at = 0; at < v.size(); at += kPlainBlock) {
    const Numbers block(v.begin() + static_cast<std::ptrdiff_t>(at),
                        v.begin() + static_cast<std::ptrdiff_t>(std::min(v.size(), at + kPlainBlock)));
    Numbers part;
    if (form.kind == Kind::bf16) std::ranges::transform(block, std::back_inserter(part), plain_bf16);
    if (form.kind == Kind::int8) part = plain_int8(block);
    if (form.kind == Kind::onebit) part = plain_onebit(block);
    sent.insert(sent.end(), part.begin(), part.end());
  }
  return sent;
}

Learned learn_serially(const Replica::Options& o, int steps, Numbers* owed) {
  const bool each_micro = o.layout.grad_sync == GradSync::micro && o.sync.compress;
  const std::int64_t rounds = each_micro ? o.layout.micro : 1;  // of sums
  std::map<std::int64_t, std::shared_ptr<SerialRun>> runs;      // by samples
  // One worker has all where nothing is left out of what workers add up.
  const std::int64_t dp = o.sync.compress ? o.layout.dp : 1;
  const std::vector<bool> cuts = cuts_of(o);
  struct Part {
    std::int64_t first, count;
  };
  std::vector<std::vector<Part>> parts(static_cast<std::size_t>(rounds));
  for (std::int64_t r = 0; r < dp; ++r) {
    const Share share = dp > 1 ? share_of(o.B, o.layout, r) : Share{0, o.B};
    for (std::int64_t m = 0; m < rounds; ++m) {
      const Part part{share.first + m * (share.count / rounds), share.count / rounds};
      parts[static_cast<std::size_t>(m)].push_back(part);
      if (runs.contains(part.count)) continue;
      Replica::Options one = o;
      one.B = part.count;
      one.layout = {};
      one.sync = {};
      one.sync.compress_activations = o.sync.compress_activations;
      runs[part.count] = std::make_shared<SerialRun>(one, cuts);
      runs[part.count]->state().init_weights();
    }
  }
  SerialRun& any = *runs.begin()->second;
  Learned learned;
  std::map<std::string, std::size_t> begins;
  Learned::Tensor last{};
  for (const LogicalTensor& t : logical_tensors(any.model())) {
    begins[t.name] = static_cast<std::size_t>(last.begin + last.count);
    last = {t.name, last.begin + last.count, t.elements()};
    learned.tensors.push_back(last);
  }
  const auto elements = static_cast<std::size_t>(last.begin + last.count);
  std::vector<PlainParameter> parameters;
  for (std::int64_t r = 0; r < o.layout.tp; ++r)
    add_parameters(Model(o.spec, 1, o.T, DType::f64, {.split = o.layout.tensor_split(r)}), o.layout, begins,
                   parameters);
  // All logical tensors of one run, one after the other.
  const auto read_all = [&](const std::vector<Replica::Named>& tensors, Stream& stream, Tensor Replica::Named::*which) {
    Numbers all(elements);
    for (const auto& t : tensors) t.put(to_doubles(t.*which, stream), std::span(all).subspan(begins.at(t.tensor.name)));
    return all;
  };
  const auto read = [&](SerialRun& run, Tensor Replica::Named::*which) {
    return read_all(run.state().tensors(), run.stream(), which);
  };
  const auto gather = [&](const Numbers& all, const PlainParameter& parameter) {
    Numbers values;
    for (const std::int64_t at : parameter.places) values.push_back(at < 0 ? 0 : all[static_cast<std::size_t>(at)]);
    return values;
  };
  const auto scatter = [&](const Numbers& values, const PlainParameter& parameter, Numbers& all) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (parameter.places[i] >= 0) all[static_cast<std::size_t>(parameter.places[i])] = values[i];
  };

  // Masters as ranks get them from each other.
  const auto gathered = [&](const Numbers& masters) {
    if (!o.sync.compress_weights) return masters;
    Numbers all(elements);
    for (const PlainParameter& parameter : parameters)
      scatter(plain_compressed(o.sync.compress_weights, gather(masters, parameter)), parameter, all);
    return all;
  };

  Numbers weights = read(any, &Replica::Named::master), m(elements), v(elements);
  std::map<std::pair<std::size_t, std::int64_t>, Numbers> residuals;  // by parameter and worker
  std::vector<Numbers> second(parameters.size());                     // of the sums' maker, by parameter
  const bool two_legs = o.sync.compress.kind != Kind::topk && o.layout.shards() == 1;
  for (int step = 0; step < steps; ++step) {
    const TokenBatch batch = random_batch(o, static_cast<unsigned>(step));
    const auto valid = static_cast<double>(
        std::ranges::count_if(batch.targets, [](std::int32_t target) { return target != kIgnoredTarget; }));
    Numbers gradient(elements);
    double loss = 0, of_first = 0, left_by_first = 0;  // squares of the first worker's gradients, and of its residuals
    for (const std::vector<Part>& round : parts) {
      std::vector<Numbers> sums(parameters.size());
      for (std::size_t w = 0; w < round.size(); ++w) {
        SerialRun& run = *runs.at(round[w].count);
        const auto of = [&](const std::vector<std::int32_t>& all) {
          return std::span(all).subspan(static_cast<std::size_t>(round[w].first * o.T),
                                        static_cast<std::size_t>(round[w].count * o.T));
        };
        const Numbers computes = gathered(weights);
        const Loads with_weights = [&](const auto& load) {
          std::vector<ConstTensor> values;
          for (const Learned::Tensor& t : learned.tensors)
            values.emplace_back(computes.data() + t.begin, DType::f64, Device::cpu, Shape{t.count});
          load(values);
        };
        std::vector<Numbers> of_workers;
        if (o.layout.cp == 1 || !o.sync.compress) {
          with_weights([&](std::span<const ConstTensor> values) { run.state().load(values); });
          loss += run.compute_gradients(of(batch.tokens), of(batch.targets), valid, step);
          of_workers.push_back(read(run, &Replica::Named::gradient));
        } else {
          Replica::Options together = o;
          together.B = round[w].count;
          together.layout = {.cp = o.layout.cp, .cp_kind = o.layout.cp_kind, .cp_order = o.layout.cp_order};
          together.sync = {};
          double mean = 0;
          of_workers = parts_of_gradient(
              together, of(batch.tokens), of(batch.targets), with_weights,
              [&](const auto& tensors, Stream& stream) { return read_all(tensors, stream, &Replica::Named::gradient); },
              mean);
          const double share = static_cast<double>(std::ranges::count_if(
                                   of(batch.targets), [](std::int32_t one) { return one != kIgnoredTarget; })) /
                               valid;
          loss += mean * share;
          for (Numbers& part : of_workers)
            for (double& g : part) g *= share;
        }
        for (std::size_t c = 0; c < of_workers.size(); ++c)
          for (std::size_t p = 0; p < parameters.size(); ++p) {
            const Numbers mine = gather(of_workers[c], parameters[p]);
            if (w + c == 0)
              for (const double g : mine) of_first += g * g;
            add_to(sums[p], !o.sync.compress
                                ? mine
                                : send(o.sync.compress, o.sync.feedback, parameters[p].cuts, mine,
                                       residuals[{p, static_cast<std::int64_t>(w * of_workers.size() + c)}]));
            if (w + c == 0 && o.sync.compress)
              for (const double left : residuals[{p, 0}]) left_by_first += left * left;
          }
      }
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (two_legs && o.sync.compress)
          sums[p] = send(o.sync.compress, o.sync.feedback, parameters[p].cuts, sums[p], second[p]);
        Numbers here(elements);
        scatter(sums[p], parameters[p], here);
        add_to(gradient, here);
      }
    }
    double square = 0;
    for (const double g : gradient) square += g * g;
    const double norm = std::sqrt(square);
    const OptimizerSpec& how = o.optimizer;
    const double scale = how.clip > 0 ? std::min(1.0, how.clip / (norm + 1e-6)) : 1;
    learned.losses.push_back(loss);
    learned.norms.push_back(norm);
    if (o.sync.compress && o.sync.feedback) learned.compression_errors.push_back(std::sqrt(left_by_first / of_first));
    learned.gradients.push_back({gradient});
    const double first = 1 - std::pow(how.beta1, step + 1), next = std::sqrt(1 - std::pow(how.beta2, step + 1));
    Numbers decays(elements);
    for (const PlainParameter& parameter : parameters) {
      scatter(Numbers(parameter.places.size(), parameter.decays ? how.weight_decay : 0), parameter, decays);
    }
    for (std::size_t i = 0; i < elements; ++i) {
      const double g = gradient[i] * scale;
      weights[i] -= how.learning_rate * decays[i] * weights[i];
      m[i] = how.beta1 * m[i] + (1 - how.beta1) * g;
      v[i] = how.beta2 * v[i] + (1 - how.beta2) * g * g;
      weights[i] -= how.learning_rate / first * m[i] / (std::sqrt(v[i]) / next + how.eps);
    }
  }
  learned.copies = {weights};
  if (!owed) return learned;
  owed->assign(elements, 0);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    Numbers here(elements), sum = second[p];
    for (const auto& [who, left] : residuals)
      if (who.first == p) add_to(sum, left);
    scatter(sum, parameters[p], here);
    add_to(*owed, here);
  }
  return learned;
}

}  // namespace lockstep::tests
