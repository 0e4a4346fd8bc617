// The plan of a graph: the kernels that the library chose for it and compiled, ready to be run.
//
// It is the first of the library's own proposals (its heuristics, no timing) that can be built; building takes most of
// a second. A plan belongs to one handle, and so to one stream. A run only queues work, so it may be captured; it
// allocates nothing on the GPU. Failure: CudnnError, `unsupported` when the library has nothing to propose.
#pragma once
#include "kernels/cuda/attention/cudnn_attention_nodes.h"

namespace lockstep::cuda {

class CudnnPlan {
 public:
  CudnnPlan(cudnnHandle_t handle, CudnnGraph graph);
  CudnnPlan(const CudnnPlan&) = delete;
  ~CudnnPlan();

  std::int64_t workspace() const { return workspace_; }  // bytes

  struct Binding {
    std::int64_t id;
    const void* data;  // on the GPU; a scalar's on the host, read before run() returns
  };
  void run(std::span<const Binding> bindings, void* workspace) const;

 private:
  cudnnHandle_t handle_;
  CudnnGraph graph_;
  std::vector<Descriptor> parts_;  // the graph, the proposals of which one was taken, and last the plan itself
  std::int64_t workspace_ = 0;
};

}  // namespace lockstep::cuda
