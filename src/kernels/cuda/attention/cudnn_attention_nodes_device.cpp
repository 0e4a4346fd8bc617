#include <utility>

#include "kernels/cuda/attention/cudnn_attention_nodes.h"

namespace lockstep::cuda {

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, std::string about) : about_(std::move(about)) {
  check_cudnn(cudnn().descriptor_create(type, &native_), "cudnnBackendCreateDescriptor", about_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : about_(std::move(other.about_)), native_(std::exchange(other.native_, nullptr)) {}

Descriptor::~Descriptor() {
  if (native_) cudnn().descriptor_destroy(native_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                     const void* values) {
  const cudnnStatus_t status = cudnn().descriptor_set(native_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS)
    check_cudnn(status, "cudnnBackendSetAttribute",
                fmt::format("{}, attribute {} of type {}, {} values", about_, static_cast<int>(name),
                            static_cast<int>(type), count));
}

std::int64_t Descriptor::integer(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0, count = 0;
  check_cudnn(cudnn().descriptor_get(native_, name, CUDNN_TYPE_INT64, 1, &count, &value), "cudnnBackendGetAttribute",
              fmt::format("{}, attribute {}", about_, static_cast<int>(name)));
  return value;
}

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, std::span<Descriptor> into) const {
  std::vector<cudnnBackendDescriptor_t> natives;
  for (const Descriptor& one : into) natives.push_back(one.native_);
  std::int64_t count = 0;
  check_cudnn(cudnn().descriptor_get(native_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(natives), &count,
                                     natives.empty() ? nullptr : natives.data()),
              "cudnnBackendGetAttribute", fmt::format("{}, attribute {}", about_, static_cast<int>(name)));
  return count;
}

void Descriptor::finalize() { check_cudnn(cudnn().descriptor_finalize(native_), "cudnnBackendFinalize", about_); }

Descriptor& CudnnGraph::tensor(const std::string& about, std::int64_t id, cudnnDataType_t type, const Extents& dims,
                               const Extents& strides, std::int64_t alignment) {
  const auto text = [](const Extents& e) { return fmt::format("({}, {}, {}, {})", e[0], e[1], e[2], e[3]); };
  Descriptor& made = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                                           fmt::format("tensor {} {} by {}", about, text(dims), text(strides)));
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::ssize(dims), dims.data());
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::ssize(strides), strides.data());
  return made;
}

CudnnGraph::Node CudnnGraph::real(const char* name, const Real& real) {
  tensor(name, real.id, real.type, real.dims, real.strides, real.alignment).finalize();
  return last();
}

CudnnGraph::Node CudnnGraph::scalar(const char* name, std::int64_t id) {
  Descriptor& made = tensor(name, id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, 16);
  made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  made.finalize();
  return last();
}

CudnnGraph::Node CudnnGraph::inner(const char* name, cudnnDataType_t type, const Extents& dims) {
  return inner(name, type, dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1});
}

CudnnGraph::Node CudnnGraph::inner(const char* name, cudnnDataType_t type, const Extents& dims,
                                   const Extents& strides) {
  constexpr std::int64_t kFirstInner = 1000;  // above the ids of real tensors
  Descriptor& made = tensor(name, kFirstInner + std::ssize(tensors_), type, dims, strides, 16);
  made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  made.finalize();
  return last();
}

void CudnnGraph::pointwise(const char* name, const Pointwise& op) {
  Descriptor& how = settings_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, fmt::format("pointwise {}", name));
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &op.mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, op.compute);
  if (op.axis) how.set(CUDNN_ATTR_POINTWISE_AXIS, *op.axis);
  how.finalize();

  Descriptor& made =
      operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, fmt::format("operation {}", name));
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, at(op.x));
  if (op.b) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, at(*op.b));
  if (op.t) made.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, at(*op.t));
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(op.y));
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0f);
  if (op.b) made.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0f);
  made.finalize();
}

void CudnnGraph::matmul(const char* name, Node c, Node a, Node b) {
  Descriptor& how = settings_.emplace_back(CUDNN_BACKEND_MATMUL_DESCRIPTOR, fmt::format("matmul {}", name));
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  how.finalize();

  Descriptor& made =
      operations_.emplace_back(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, fmt::format("operation {}", name));
  made.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  made.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  made.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(c));
  made.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  made.finalize();
}

void CudnnGraph::reduce(const char* name, cudnnReduceTensorOp_t how_to, Node y, Node x) {
  Descriptor& how = settings_.emplace_back(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, fmt::format("reduction {}", name));
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how_to);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  // The fused kernels are found only without this mark, also those whose results repeat to the bit.
  how.set(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, false);
  how.finalize();

  Descriptor& made =
      operations_.emplace_back(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, fmt::format("operation {}", name));
  made.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  made.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(y));
  made.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  made.finalize();
}

void CudnnGraph::reshape(const char* name, Node y, Node x) {
  Descriptor& made =
      operations_.emplace_back(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, fmt::format("operation {}", name));
  made.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  made.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(y));
  made.finalize();
}

std::vector<cudnnBackendDescriptor_t> CudnnGraph::operations() const {
  std::vector<cudnnBackendDescriptor_t> all;
  for (const Descriptor& one : operations_) all.push_back(one.native());
  return all;
}

}  // namespace lockstep::cuda
