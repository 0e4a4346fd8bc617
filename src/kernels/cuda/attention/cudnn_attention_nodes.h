// A graph of cuDNN operations, described node by node.
//
// The backend API knows descriptors: objects with numbered attributes that are set one by one and then finalized. Here
// they are owned, and every failure names the call, the tensor or operation it was about and the attribute's number
// (cudnn_graph_v9.h lists them). Tensors have four dims. Real ones have an id, by which a run hands over their address;
// scalars are fp32 of one element, read from the host; inner ones live only inside the fused kernel. Compute types are
// float unless said otherwise. Not thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn.h"

namespace lockstep::cuda {

class Descriptor {
 public:
  Descriptor(cudnnBackendDescriptorType_t type, std::string about);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  void set(cudnnBackendAttributeName_t name, std::int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, bool value) { set(name, CUDNN_TYPE_BOOLEAN, 1, &value); }
  void set(cudnnBackendAttributeName_t name, float value) { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) { set(name, CUDNN_TYPE_DATA_TYPE, 1, &value); }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.native_);
  }
  std::int64_t integer(cudnnBackendAttributeName_t name) const;
  // As many of these (made, not finalized) as the attribute has; returns how many it has.
  std::int64_t get(cudnnBackendAttributeName_t name, std::span<Descriptor> into) const;
  void finalize();

  cudnnBackendDescriptor_t native() const { return native_; }
  const std::string& about() const { return about_; }

 private:
  std::string about_;
  cudnnBackendDescriptor_t native_ = nullptr;
};

class CudnnGraph {
 public:
  using Extents = std::array<std::int64_t, 4>;
  enum class Node : int {};  // a tensor's place in the graph

  struct Real {
    std::int64_t id;
    cudnnDataType_t type;
    Extents dims, strides;
    std::int64_t alignment = 16;  // of its address, in bytes
  };
  Node real(const char* name, const Real& tensor);
  Node scalar(const char* name, std::int64_t id);
  Node inner(const char* name, cudnnDataType_t type, const Extents& dims);  // strides as if without gaps
  Node inner(const char* name, cudnnDataType_t type, const Extents& dims, const Extents& strides);

  struct Pointwise {
    cudnnPointwiseMode_t mode;
    Node y, x;
    std::optional<Node> b = {};
    std::optional<Node> t = {};             // of a select: y = t ? x : b
    std::optional<std::int64_t> axis = {};  // of an index: y = the place along it
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  };
  void pointwise(const char* name, const Pointwise& op);
  void matmul(const char* name, Node c, Node a, Node b);                     // c = a b, heads of b shared by those of a
  void reduce(const char* name, cudnnReduceTensorOp_t how, Node y, Node x);  // over the dims where y is shorter
  void reshape(const char* name, Node y, Node x);

  std::vector<cudnnBackendDescriptor_t> operations() const;  // in the order of the calls

 private:
  Descriptor& tensor(const std::string& about, std::int64_t id, cudnnDataType_t type, const Extents& dims,
                     const Extents& strides, std::int64_t alignment);
  Node last() const { return static_cast<Node>(tensors_.size() - 1); }
  const Descriptor& at(Node node) const { return tensors_[static_cast<std::size_t>(node)]; }

  std::vector<Descriptor> tensors_;
  std::vector<Descriptor> settings_;  // what operations refer to beside tensors
  std::vector<Descriptor> operations_;
};

}  // namespace lockstep::cuda
