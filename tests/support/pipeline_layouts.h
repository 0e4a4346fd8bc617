// The layouts that pipelines are held to: every schedule, any number of stages, chunks and micro-batches, alone and
// with the other axes.
#pragma once
#include <vector>

#include "spec/model/model_spec.h"
#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {

// The tiny models and those with other heads, tied and not, with so many layers that eight stages have some.
inline std::vector<NamedSpec> deep_specs() {
  std::vector<NamedSpec> all = cut_specs();
  for (NamedSpec& model : all) model.spec.layers = 7;
  return all;
}

// One copy of the model in stages.
inline LayoutSpec pipeline_layout(ScheduleKind kind, int pp, int micro, int chunks) {
  return {.pp = pp, .schedule = kind, .chunks = chunks, .micro = micro};
}
inline LayoutSpec pipeline_layout(ScheduleKind kind, int pp, int micro) {
  return pipeline_layout(kind, pp, micro, usual_chunks(kind));
}

// Of one copy of the model: its bits are one rank's.
inline std::vector<LayoutSpec> pipelines(const ModelSpec& spec, int micro) {
  std::vector<LayoutSpec> all;
  const auto add = [&](int pp, ScheduleKind kind, int chunks) {
    if (pp * chunks <= spec.layers + 2) all.push_back({.pp = pp, .schedule = kind, .chunks = chunks, .micro = micro});
  };
  for (const int pp : {1, 2, 3, 4, 8})
    for (const ScheduleKind kind : kScheduleKinds) {
      add(pp, kind, usual_chunks(kind));
      if (kind == ScheduleKind::interleaved) add(pp, kind, 1), add(pp, kind, 3);
    }
  return all;
}

// With parts of the batch, of every layer and of the state.
inline std::vector<LayoutSpec> meshes(const ModelSpec& spec, int micro) {
  std::vector<LayoutSpec> all;
  const int cut = heads_divide(spec.heads, spec.kv_heads, 2) ? 2 : 3;
  for (const int pp : {2, 3})
    for (const int tp : {1, cut})
      for (const int zero : {0, 1, 2, 3})
        for (const ScheduleKind kind : kScheduleKinds)
          all.push_back({.dp = 2,
                         .pp = pp,
                         .schedule = kind,
                         .chunks = usual_chunks(kind),
                         .tp = tp,
                         .sp = LayoutSpec::usual_sp(tp),
                         .micro = micro,
                         .zero = zero,
                         .grad_sync = LayoutSpec::usual_sync(zero)});
  return all;
}

// Two steps on a batch that so many micro-batches and two parts divide.
inline Learned learn_pipelined(const ModelSpec& spec, const LayoutSpec& layout, const PrecisionSpec& precision) {
  Replica::Options options = learning_options(spec, layout, precision);
  options.B = 2 * layout.micro * (layout.micro < 4 ? 4 : 1);
  options.T = 6;
  return learn(options, 2);
}

}  // namespace lockstep::tests
