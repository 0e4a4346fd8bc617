#include "spec/run/sparsity_check.h"

#include <fmt/format.h>

#include "base/integers.h"

namespace lockstep {

namespace {

void check_growth(const RunSpec& spec, const SparsityFault& fail) {
  const SparsitySpec& s = spec.sparsity;
  if (s.end <= s.begin)
    fail("sparsity", "end", fmt::format("the mask grows from step begin = {} to end = {}", s.begin, s.end),
         fmt::format("use sparsity.end={} or more", s.begin + s.every));
  if (const std::int64_t over = (s.end - s.begin) % s.every; over != 0)
    fail("sparsity", "every",
         fmt::format("mask steps are {} apart from begin = {} on, and end = {} is none of them", s.every, s.begin,
                     s.end),
         fmt::format("use sparsity.end={}", s.end - over + s.every));
  if (spec.train.steps > 0 && s.end >= spec.train.steps)
    fail("sparsity", "end",
         fmt::format("the run ends after train.steps = {}, before it has trained with the mask of step end = {}",
                     spec.train.steps, s.end),
         fmt::format("use train.steps={} or more, or a smaller end", s.end + 1));
}

// Groups of four are of a product's inputs, all of them, and each rank's part of them.
void check_groups(const RunSpec& spec, const SparsityFault& fail) {
  const ModelSpec& model = spec.model;
  const std::int64_t tp = spec.layout.tp;
  const std::pair<std::string_view, std::int64_t> inputs[] = {
      {"model.width", model.width},
      {"model.heads times model.head_width", model.heads * model.head_width},
      {"model.ffn_width", model.ffn_width}};
  for (const auto& [name, width] : inputs)
    if (width % 4 != 0)
      fail("sparsity", "kind", fmt::format("2:4 needs products over a multiple of 4 inputs, and {} is {}", name, width),
           "use widths that 4 divides, or sparsity.kind=unstructured");
  for (const auto& [name, part] :
       {std::pair("model.heads times model.head_width", ceil_div(model.heads, tp) * model.head_width),
        std::pair("model.ffn_width", ceil_div(model.ffn_width, tp))})
    if (tp > 1 && part % 4 != 0)
      fail("sparsity", "kind",
           fmt::format(
               "2:4 needs products over a multiple of 4 inputs on each rank, and with tp = {} a rank has {} of {}", tp,
               part, name),
           "use another layout.tp, or sparsity.kind=unstructured");
}

}  // namespace

void check_sparsity(const RunSpec& spec, const SparsityFault& fail) {
  if (!spec.sparsity) return;
  check_growth(spec, fail);
  if (spec.sparsity.kind == SparsityKind::two_of_four) check_groups(spec, fail);
  const auto refuse = [&](const std::string& problem, const std::string& remedy) {
    fail("sparsity", "kind", problem, remedy + ", or sparsity.kind=none");
  };
  if (spec.layout.dp_kind != DpKind::ddp)
    refuse(
        fmt::format("state is packed on the ranks that compute, and dp_kind is \"{}\"", name_of(spec.layout.dp_kind)),
        "use layout.dp_kind=ddp");
  if (spec.sync.changes_numbers()) refuse("masks are not combined with what [sync] changes yet", "leave [sync] out");
  if (spec.memory.offload_optimizer != Offload::none || spec.memory.offload_gradients != Offload::none ||
      spec.memory.offload_parameters != Offload::none)
    refuse("state that is offloaded is not packed yet",
           "leave offload_optimizer, offload_gradients and offload_parameters out of [memory]");
  if (spec.precision.master != StateType::full || spec.precision.moments != StateType::full)
    refuse("bf16 masters and moments are rounded by their place, and are not packed yet",
           "leave precision.master and precision.moments out");
  if (spec.train.loss_spikes != LossSpikes::ignore)
    refuse("a run with a mask does not go back to an earlier step", "use train.loss_spikes=ignore");
  if (spec.train.copy_every > 0) refuse("packed state is not copied to the host's memory", "use train.copy_every=0");
  if (spec.run.check_state > 0) refuse("packed state is not hashed", "use run.check_state=0");
}

}  // namespace lockstep
