#include "telemetry/advice.h"

#include <fmt/format.h>

namespace lockstep {

namespace {

struct Remedy {
  std::string key, text;
};

Remedy remedy_of_dp(const RunFacts& run) {
  if (!run.overlap) return {"layout.overlap", "layout.overlap=on sums gradients while the backward computes"};
  if (run.zero == 3)
    return {"layout.zero", "layout.zero=1, if it fits, gathers no weights in forward and backward (lockstep plan)"};
  return {"train.global_batch", "a larger train.global_batch sums gradients once for more tokens"};
}

Remedy remedy_of_pp(const RunFacts& run) {
  if (run.micro_batch > 1)
    return {"layout.micro",
            fmt::format("more micro-batches shorten the pipeline's bubble: layout.micro={}", run.micro * 2)};
  return {"train.global_batch",
          "a larger train.global_batch with as many more layout.micro shortens the pipeline's bubble"};
}

Remedy remedy_of_optimizer(const RunFacts& run) {
  if (run.dp > 1 && run.zero == 0)
    return {"layout.zero", "layout.zero=1 lets each rank update its shard of the weights alone"};
  return {"train.global_batch", "a larger train.global_batch updates once for more tokens"};
}

Remedy remedy_of_compute(const RunFacts& run) {
  const std::int64_t tokens = run.micro_batch * run.seq / run.cp;
  if (tokens < fewest_tokens(run.gpu)) {
    const std::string few = fmt::format("a micro-batch has {} tokens per rank, which makes small products: ", tokens);
    if (run.micro > 1 && run.pp == 1)
      return {"layout.micro", fmt::format("{}layout.micro={} makes them larger", few, run.micro / 2)};
    return {"train.global_batch", few + "a larger train.global_batch makes them larger"};
  }
  if (run.recompute)
    return {"memory.recompute", "memory.recompute=none, if it fits, computes nothing twice (lockstep plan)"};
  return {"", "no key of the run file makes it faster; a model with a larger width has larger products"};
}

Remedy remedy_of(TimeUse use, const RunFacts& run) {
  switch (use) {
    case TimeUse::wait_dp:
      return remedy_of_dp(run);
    case TimeUse::wait_pp:
      return remedy_of_pp(run);
    case TimeUse::wait_cp:
      return {"layout.cp", "a smaller layout.cp, if it fits, exchanges fewer keys and values (lockstep plan)"};
    case TimeUse::wait_tp:
      return {"layout.tp", "a smaller layout.tp with a larger layout.dp, if it fits, exchanges less (lockstep plan)"};
    case TimeUse::optimizer:
      return remedy_of_optimizer(run);
    case TimeUse::data:
      return {"data.tokens", "data.tokens with a token file on a local disk (lockstep tokenize) is read faster"};
    case TimeUse::other:
      return {"train.global_batch", "a larger train.global_batch has fewer steps to look after"};
    default:
      return remedy_of_compute(run);
  }
}

}  // namespace

Advice mfu_advice(const TimesByUse& times, const RunFacts& run) {
  const double all = times.total() - times[TimeUse::save] - times[TimeUse::evaluate];
  TimeUse most = TimeUse::compute;
  double seconds = kLargeShare * all;
  for (const TimeUse use : {TimeUse::wait_dp, TimeUse::wait_pp, TimeUse::wait_cp, TimeUse::wait_tp, TimeUse::optimizer,
                            TimeUse::data, TimeUse::other})
    if (all > 0 && times[use] >= seconds) most = use, seconds = times[use];
  Advice advice{.use = most, .share = {}, .key = {}, .text = {}};
  if (all > 0) advice.share = times[most] / all;
  const Remedy remedy = remedy_of(most, run);
  advice.key = remedy.key;
  advice.text =
      fmt::format("{}; {}",
                  advice.share ? fmt::format("{:.0f}% of the step went to {}", *advice.share * 100, name_of(most))
                               : std::string("where the time went is not recorded on this device"),
                  remedy.text);
  return advice;
}

}  // namespace lockstep
