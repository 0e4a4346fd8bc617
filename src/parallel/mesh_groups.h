// The groups of the mesh that a rank belongs to: the ranks that have the same part of every layer and other parts of
// the batch (data), and those that have the same part of the batch and other parts of every layer (tensor).
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
  MeshGroups(Communicator& world, const LayoutSpec& layout) : world_(world), tensor_(&world), data_(&world) {
    if (layout.tp == 1) {
      own_tensor_ = std::make_unique<Alone>(world.device());
      tensor_ = own_tensor_.get();
      return;
    }
    const int tp = static_cast<int>(layout.tp);
    own_data_ = world.split([=](int r) { return Place{.color = r % tp, .key = r}; }, "dp");
    data_ = own_data_.get();
    if (layout.dp == 1) return;
    own_tensor_ = world.split([=](int r) { return Place{.color = r / tp, .key = r}; }, "tp");
    tensor_ = own_tensor_.get();
  }

  Communicator& world() const { return world_; }
  Communicator& data() const { return *data_; }
  Communicator& tensor() const { return *tensor_; }
  void check() const {
    for (Communicator* group : {&world_, data_, tensor_}) group->check();
  }

 private:
  Communicator& world_;
  std::unique_ptr<Communicator> own_tensor_, own_data_;
  Communicator *tensor_, *data_;
};

}  // namespace lockstep
