#include "kernels/cuda/attention/cudnn_attention_plan.h"

#include <utility>

namespace lockstep::cuda {

CudnnPlan::CudnnPlan(cudnnHandle_t handle, CudnnGraph given) : handle_(handle), graph_(std::move(given)) {
  const std::vector<cudnnBackendDescriptor_t> operations = graph_.operations();
  const auto add = [&](cudnnBackendDescriptorType_t type, std::string about) {
    parts_.emplace_back(type, std::move(about));
  };
  add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, fmt::format("graph of {} operations", operations.size()));
  parts_[0].set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
  parts_[0].set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(operations),
                operations.data());
  parts_[0].finalize();

  add(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "proposals for a " + parts_[0].about());
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  parts_[1].set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, parts_[0]);
  parts_[1].set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  parts_[1].finalize();

  std::vector<Descriptor> proposals;
  const std::int64_t most = parts_[1].get(CUDNN_ATTR_ENGINEHEUR_RESULTS, {});
  for (std::int64_t n = 0; n < most; ++n)
    proposals.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, fmt::format("proposal {}", n));
  const std::int64_t count = most > 0 ? parts_[1].get(CUDNN_ATTR_ENGINEHEUR_RESULTS, proposals) : 0;

  std::optional<CudnnError> first;  // the proposal that should have worked
  for (std::int64_t n = 0; n < count; ++n) {
    try {
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan of " + proposals[n].about());
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, proposals[n]);
      plan.finalize();
      workspace_ = plan.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      parts_.push_back(std::move(proposals[n]));
      parts_.push_back(std::move(plan));
      return;
    } catch (const CudnnError& error) {
      if (!first) first = error;
    }
  }
  throw CudnnError(first ? first->status() : CUDNN_STATUS_NOT_SUPPORTED,
                   fmt::format("no plan for a {}: {}", parts_[0].about(),
                               first ? fmt::format("of {} proposals the first: {}", count, first->what())
                                     : std::string("there are no proposals (with CUDNN_LOGLEVEL_DBG=2 and "
                                                   "CUDNN_LOGDEST_DBG=stderr the library says why)")));
}

// What was made from others goes before them.
CudnnPlan::~CudnnPlan() {
  while (!parts_.empty()) parts_.pop_back();
}

void CudnnPlan::run(std::span<const Binding> bindings, void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const Binding& one : bindings) {
    ids.push_back(one.id);
    addresses.push_back(const_cast<void*>(one.data));  // the graph says which of them are written
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, fmt::format("pack of {} addresses", ids.size()));
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(ids), ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(addresses), addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  check_cudnn(cudnn().execute(handle_, parts_.back().native(), pack.native()), "cudnnBackendExecute",
              fmt::format("{}, workspace of {} bytes", parts_[0].about(), workspace_));
}

}  // namespace lockstep::cuda
