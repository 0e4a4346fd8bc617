#include "optim/flat_optimizer.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace lockstep {

FlatOptimizer::FlatOptimizer(const OptimizerSpec& spec, const Range& range, Memory& memory, const std::string& unit,
                             Stream& stream)
    : spec_(spec), range_(range) {
  const std::int64_t bytes = range.elements * size_of(range.moments);
  if (spec.kind == OptimizerKind::adamw || spec.momentum > 0) first_ = memory.allocate(bytes, Tag::optimizer, unit);
  if (spec.kind == OptimizerKind::adamw) second_ = memory.allocate(bytes, Tag::optimizer, unit);
  for (const Tensor& t : state()) clear(t, stream);
}

std::vector<Tensor> FlatOptimizer::state() const {
  std::vector<Tensor> tensors;
  for (const Buffer* buffer : {&first_, &second_})
    if (buffer->memory()) tensors.push_back(view(*buffer, range_.moments, {range_.elements}));
  return tensors;
}

std::vector<std::pair<std::string_view, Tensor>> FlatOptimizer::named_state() const {
  static constexpr std::string_view kAdamw[] = {"m", "v"}, kSgd[] = {"momentum"};
  std::vector<std::pair<std::string_view, Tensor>> named;
  for (const Tensor& t : state())
    named.emplace_back(spec_.kind == OptimizerKind::adamw ? kAdamw[named.size()] : kSgd[named.size()], t);
  return named;
}

void FlatOptimizer::update(Tensor master, Tensor weight, ConstTensor gradient, ConstTensor control, Stream& stream) {
  const std::vector<Tensor> kept = state();
  update({.begin = 0, .master = master, .weight = weight, .state = kept, .gradient = gradient}, control, stream);
}

void FlatOptimizer::update(const Part& part, ConstTensor control, Stream& stream) const {
  const std::int64_t count = part.master.elements();
  const std::int64_t decayed = std::clamp<std::int64_t>(range_.decayed - part.begin, 0, count);
  if (spec_.kind == OptimizerKind::adamw)
    adamw({.master = part.master,
           .weight = part.weight,
           .m = part.state[0],
           .v = part.state[1],
           .gradient = part.gradient,
           .control = control,
           .beta1 = spec_.beta1,
           .beta2 = spec_.beta2,
           .eps = spec_.eps,
           .decay = spec_.weight_decay,
           .decayed = decayed,
           .rounding = range_.rounding,
           .first = range_.first + part.begin},
          stream);
  else
    sgd({.master = part.master,
         .weight = part.weight,
         .momentum = part.state.empty() ? Tensor{} : part.state[0],
         .gradient = part.gradient,
         .control = control,
         .beta = spec_.momentum,
         .decay = spec_.weight_decay,
         .decayed = decayed,
         .rounding = range_.rounding,
         .first = range_.first + part.begin},
        stream);
}

}  // namespace lockstep
