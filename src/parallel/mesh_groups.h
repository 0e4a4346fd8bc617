// The groups of the mesh that a rank belongs to: the ranks that have the same part of the model and other parts of the
// batch (data), those that have the same part of the batch and cut every layer with it (tensor), and those that have
// the layers before and behind (pipeline: its ranks are the stages).
//
// One thread uses it; it goes before the world.
#pragma once
#include <memory>

#include "comm/alone.h"
#include "comm/communicator.h"
#include "spec/layout_spec.h"

namespace lockstep {

class MeshGroups {
 public:
  MeshGroups(Communicator& world, const LayoutSpec& layout) : world_(world), alone_(world.device()) {
    const int pp = static_cast<int>(layout.pp), tp = static_cast<int>(layout.tp), line = pp * tp;
    data_ = group(layout.dp, own_data_, "dp", [=](int r) { return r % line; });
    pipeline_ = group(layout.pp, own_pipeline_, "pp", [=](int r) { return r / line * tp + r % tp; });
    tensor_ = group(layout.tp, own_tensor_, "tp", [=](int r) { return r / tp; });
  }

  Communicator& world() const { return world_; }
  Communicator& data() const { return *data_; }
  Communicator& pipeline() const { return *pipeline_; }
  Communicator& tensor() const { return *tensor_; }
  void check() const {
    for (Communicator* group : {&world_, data_, pipeline_, tensor_}) group->check();
  }

 private:
  // An axis that has all ranks is the world, and one of a single rank costs nothing.
  Communicator* group(std::int64_t size, std::unique_ptr<Communicator>& own, const char* name,
                      const std::function<int(int)>& color) {
    if (size == world_.size()) return &world_;
    if (size == 1) return &alone_;
    own = world_.split([&](int r) { return Place{.color = color(r), .key = r}; }, name);
    return own.get();
  }

  Communicator& world_;
  Alone alone_;
  std::unique_ptr<Communicator> own_data_, own_pipeline_, own_tensor_;
  Communicator *data_, *pipeline_, *tensor_;
};

}  // namespace lockstep
