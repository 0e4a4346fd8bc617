// The groups of the mesh dp × pp × cp × tp that a rank belongs to, rank = ((dp · PP + pp) · CP + cp) · TP + tp:
//
//   tensor     the same tokens; each has a part of every layer               (tp varies)
//   context    the same samples, split by tokens                             (cp varies)
//   pipeline   the same tokens, other layers: its ranks are the stages       (pp varies)
//   replicas   the same weights, other tokens: gradients are summed over it  (dp and cp vary)
//   others     the same place in other groups of replicas                     (dp varies)
//
// All dp ranks are replicas of each other, and `others` is this rank alone, unless groups of `together` dp ranks are
// synchronous among themselves only (parallel/local_steps.h).
//
// Parameter servers are in these groups as if they were further dp ranks: in `replicas` they come after the ranks that
// compute; those of one row are a group along each of the other axes.
//
// All ranks construct theirs at the same point. One thread uses it; it is destroyed before the world.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "comm/single_rank.h"
#include "spec/layout/layout_spec.h"

namespace lockstep {

class MeshGroups {
 public:
  // `together`: 0 for all.
  MeshGroups(Communicator& world, const LayoutSpec& layout, std::int64_t together = 0)
      : world_(world), alone_(world.device()) {
    const int pp = static_cast<int>(layout.pp), tp = static_cast<int>(layout.tp);
    const std::int64_t groups = together > 0 ? layout.dp / together : 1;
    const int all = static_cast<int>(layout.line()),  // ranks of one dp rank
        rows = groups == 1 ? world.size() / all : static_cast<int>(together);
    const int line = static_cast<int>(layout.cp) * tp;  // the ranks of a stage that work together
    replicas_ = group(layout.holders() / groups, own_replicas_, "dp",
                      [=](int r) { return r / (all * rows) * pp * tp + r / line % pp * tp + r % tp; });
    others_ = group(groups, own_others_, "groups", [=](int r) { return r / all % rows * all + r % all; });
    pipeline_ = group(layout.pp, own_pipeline_, "pp", [=](int r) { return r / (line * pp) * line + r % line; });
    tensor_ = group(layout.tp, own_tensor_, "tp", [=](int r) { return r / tp; });
    // Never the world itself, though it may have the same ranks: its messages are told apart by their name.
    if (layout.cp > 1) own_context_ = split("cp", [=](int r) { return r / line * tp + r % tp; });
  }

  Communicator& world() const { return world_; }
  Communicator& replicas() const { return *replicas_; }
  Communicator& others() const { return *others_; }
  Communicator& pipeline() const { return *pipeline_; }
  Communicator& tensor() const { return *tensor_; }
  Communicator& context() { return own_context_ ? *own_context_ : alone_; }
  void check() const {
    for (Communicator* group : {&world_, replicas_, others_, pipeline_, tensor_}) group->check();
    if (own_context_) own_context_->check();
  }

 private:
  using Color = std::function<int(int rank)>;
  std::unique_ptr<Communicator> split(const char* name, const Color& color) {
    return world_.split([&](int r) { return Place{.color = color(r), .key = r}; }, name);
  }
  // An axis that has all ranks is the world, and one of a single rank costs nothing.
  Communicator* group(std::int64_t size, std::unique_ptr<Communicator>& own, const char* name, const Color& color) {
    if (size == world_.size()) return &world_;
    if (size == 1) return &alone_;
    own = split(name, color);
    return own.get();
  }

  Communicator& world_;
  SingleRank alone_;
  std::unique_ptr<Communicator> own_replicas_, own_others_, own_pipeline_, own_tensor_, own_context_;
  Communicator *replicas_, *others_, *pipeline_, *tensor_;
};

}  // namespace lockstep
