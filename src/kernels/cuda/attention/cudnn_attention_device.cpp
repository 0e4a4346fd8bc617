#include "kernels/cuda/attention/cudnn_attention.h"

#include <cmath>
#include <initializer_list>
#include <map>
#include <memory>
#include <utility>

#include "kernels/cuda/attention/cudnn_attention_graphs.h"
#include "kernels/cuda/attention/cudnn_attention_plan.h"
#include "tensor/cuda/device.h"

namespace lockstep::cuda {

namespace {

using Id = AttentionOperand;
using Binding = CudnnPlan::Binding;

// What a stream keeps of the library: its handle and the plans made so far.
class Plans {
 public:
  // A plan, or why there is none.
  struct Entry {
    std::unique_ptr<CudnnPlan> plan;
    std::string refusal;
  };

  explicit Plans(const Stream& stream) {
    check_cudnn(cudnn().create(&handle_), "cudnnCreate", "attention");
    check_cudnn(cudnn().set_stream(handle_, static_cast<cudaStream_t>(stream.native())), "cudnnSetStream", "attention");
  }
  Plans(const Plans&) = delete;
  ~Plans() {
    entries_.clear();
    if (handle_) cudnn().destroy(handle_);
  }

  const Entry& find(const AttentionForm& form) {
    const auto found = entries_.find(form);
    if (found != entries_.end()) return found->second;
    Entry entry;
    try {
      entry.plan = std::make_unique<CudnnPlan>(
          handle_, form.backward ? attention_backward_graph(form) : attention_forward_graph(form));
    } catch (const CudnnError& error) {
      if (!error.unsupported()) throw;
      entry.refusal = error.what();
    }
    return entries_.emplace(form, std::move(entry)).first->second;
  }

  static Plans& of(Stream& stream) {
    std::shared_ptr<void>& kept = stream.kept_for(Library::cudnn);
    if (!kept) kept = std::make_shared<Plans>(stream);
    return *static_cast<Plans*>(kept.get());
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionForm, Entry> entries_;
};

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

template <class Args>
AttentionSizes sizes_of(const Args& a, bool deterministic) {
  return {.B = a.q.dim(0),
          .T = a.q.dim(1),
          .S = a.k.dim(1),
          .H = a.q.dim(2),
          .K = a.k.dim(2),
          .D = a.q.dim(3),
          .dtype = a.q.dtype(),
          .causal = a.causal,
          .dropout = a.dropout.probability > 0,
          .deterministic = deterministic,
          .documents = bool(a.documents.starts)};
}

struct Operand {
  const char* name;
  ConstTensor tensor;
};

// "" or why cuDNN cannot read or write one of these.
std::string unsuitable(std::initializer_list<Operand> operands) {
  for (const auto& [name, t] : operands) {
    if (!aligned(t.raw())) return fmt::format("{} does not begin at a multiple of 16 bytes", name);
    for (int i = 0; i < 3; ++i)
      if (t.stride(i) % 8 != 0)
        return fmt::format("{} has a stride of {} elements, no multiple of 8", name, t.stride(i));
  }
  return "";
}

HeadStrides strides_of(const ConstTensor& t) {
  return {.batch = t.stride(0), .head = t.stride(2), .token = t.stride(1)};
}

AttentionForm form_of(const AttentionSizes& s, const AttentionPart& part, bool statistics_aligned) {
  return {.backward = false,
          .deterministic = false,
          .causal = s.causal,
          .type = s.dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
          .B = part.B,
          .T = s.T,
          .S = s.S,
          .H = part.K * (s.H / s.K),
          .K = part.K,
          .D = s.D,
          .statistics_alignment = statistics_aligned ? 16 : 4,
          .q = {},
          .k = {},
          .v = {},
          .o = {}};
}

// The address of sample b and head h of an operand (B, T, heads, D) of a 16-bit type.
const void* address(const ConstTensor& t, std::int64_t b, std::int64_t h) {
  return static_cast<const std::uint16_t*>(t.raw()) + b * t.stride(0) + h * t.stride(2);
}

Binding bind(Id id, const void* data) { return {static_cast<std::int64_t>(id), data}; }

}  // namespace

std::string cudnn_attention_forward(const AttentionForwardArgs& a, lockstep::Stream& on) {
  const AttentionSizes sizes = sizes_of(a, true);
  if (const char* reason = why_not_cudnn(sizes)) return reason;
  if (std::string reason = unsuitable({{"q", a.q}, {"k", a.k}, {"v", a.v}, {"o", a.o}}); !reason.empty()) return reason;

  AttentionForm form = form_of(sizes, {sizes.B, sizes.K}, aligned(a.lse.raw()));
  form.q = strides_of(a.q), form.k = strides_of(a.k), form.v = strides_of(a.v), form.o = strides_of(a.o);
  Stream& stream = Stream::of(on);
  const Plans::Entry& entry = Plans::of(stream).find(form);
  if (!entry.plan) return entry.refusal;
  if (entry.plan->workspace() > kScratchBytes)
    return fmt::format("its plan asks for {} bytes of workspace, the stream has {}", entry.plan->workspace(),
                       kScratchBytes);
  const float scale = static_cast<float>(a.scale), minus_infinity = -INFINITY;
  std::vector<Binding> bindings = {bind(Id::q, a.q.raw()), bind(Id::k, a.k.raw()),     bind(Id::v, a.v.raw()),
                                   bind(Id::o, a.o.raw()), bind(Id::lse, a.lse.raw()), bind(Id::scale, &scale)};
  if (a.causal) bindings.push_back(bind(Id::minus_infinity, &minus_infinity));
  entry.plan->run(bindings, stream.scratch());
  return "";
}

std::string cudnn_attention_backward(const AttentionBackwardArgs& a, lockstep::Stream& on, std::int64_t bound) {
  const AttentionSizes sizes = sizes_of(a, a.deterministic);
  if (const char* reason = why_not_cudnn(sizes)) return reason;
  std::string reason = unsuitable(
      {{"q", a.q}, {"k", a.k}, {"v", a.v}, {"o", a.o}, {"d_o", a.d_o}, {"dq", a.dq}, {"dk", a.dk}, {"dv", a.dv}});
  if (!reason.empty()) return reason;

  const AttentionPart part = attention_part(sizes, bound);
  const AttentionReserve reserve = attention_reserve(sizes, part);
  if (!a.workspace || !aligned(a.workspace.raw()) || a.workspace.bytes() < reserve.total())
    return fmt::format("it needs {} bytes of workspace, at a multiple of 16", reserve.total());

  // Of lse, parts are runs of rows. With an odd number of tokens they may begin at any element.
  const std::int64_t group = sizes.H / sizes.K, rows_of_part = part.B * part.K * group * sizes.T;
  const bool whole = part.B == sizes.B && part.K == sizes.K;
  AttentionForm form = form_of(sizes, part, aligned(a.lse.raw()) && (whole || rows_of_part % 4 == 0));
  form.backward = true;
  form.deterministic = a.deterministic;
  form.q = strides_of(a.q), form.k = strides_of(a.k), form.v = strides_of(a.v), form.o = strides_of(a.o);
  form.d_o = strides_of(a.d_o), form.dq = strides_of(a.dq), form.dk = strides_of(a.dk), form.dv = strides_of(a.dv);
  const Plans::Entry& entry = Plans::of(Stream::of(on)).find(form);
  if (!entry.plan) return entry.refusal;
  if (entry.plan->workspace() > reserve.plan)
    return fmt::format("its plan asks for {} bytes of workspace, {} are reserved", entry.plan->workspace(),
                       reserve.plan);

  auto* const workspace = static_cast<std::byte*>(a.workspace.raw());
  void* const of_plan = workspace + reserve.delta + reserve.accumulator;
  const float scale = static_cast<float>(a.scale), minus_infinity = -INFINITY, one = 1;
  for (std::int64_t b = 0; b < sizes.B; b += part.B)
    for (std::int64_t k = 0; k < sizes.K; k += part.K) {
      const std::int64_t h = k * group;
      std::vector<Binding> bindings = {bind(Id::q, address(a.q, b, h)),
                                       bind(Id::k, address(a.k, b, k)),
                                       bind(Id::v, address(a.v, b, k)),
                                       bind(Id::o, address(a.o, b, h)),
                                       bind(Id::lse, a.lse.data<float>() + (b * sizes.H + h) * sizes.T),
                                       bind(Id::scale, &scale),
                                       bind(Id::one, &one),
                                       bind(Id::d_o, address(a.d_o, b, h)),
                                       bind(Id::dq, address(a.dq, b, h)),
                                       bind(Id::dk, address(a.dk, b, k)),
                                       bind(Id::dv, address(a.dv, b, k)),
                                       bind(Id::delta, workspace)};
      if (a.causal) bindings.push_back(bind(Id::minus_infinity, &minus_infinity));
      if (!a.deterministic) bindings.push_back(bind(Id::accumulator, workspace + reserve.delta));
      entry.plan->run(bindings, of_plan);
    }
  return "";
}

}  // namespace lockstep::cuda
