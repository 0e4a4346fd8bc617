// A call that breaks a contract is refused before anything runs, by name: every case, broken in every operand.
#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/random.h"
#include "kernels/rmsnorm.h"
#include "support/case_names.h"
#include "support/case_run.h"
#include "support/devices.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

class EveryContract : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const KernelCase& kernel = kernel_cases()[GetParam()];
    for (const Operand& operand : kernel.operands) {
      buffers_.push_back(device_.memory().allocate((operand.shape.elements() + 1024) * 16, Tag::data));
      std::memset(buffers_.back().data(), 0, static_cast<std::size_t>(buffers_.back().bytes()));
    }
  }
  const KernelCase& kernel() const { return kernel_cases()[GetParam()]; }

  Tensor operand(std::size_t n, DType dtype, const Shape& shape, Device device) {
    return device == Device::meta ? Tensor(nullptr, dtype, device, shape) : view(buffers_[n], dtype, shape);
  }
  std::vector<Tensor> operands(Device device = Device::cpu) {
    std::vector<Tensor> tensors;
    for (std::size_t n = 0; n < buffers_.size(); ++n)
      tensors.push_back(operand(n, kernel().operands[n].dtype, kernel().operands[n].shape, device));
    return tensors;
  }

  // The message of the refusal, or what happened instead.
  std::string refusal(const std::vector<Tensor>& tensors, Device device = Device::cpu) {
    try {
      kernel().run(tensors, device == Device::cpu ? device_.stream() : meta_.stream());
    } catch (const ProgramError& error) {
      return error.what();
    }
    return "it ran";
  }

  // Names the op, and one of its operands: where shapes follow from each other, either may be the wrong one.
  void expect_named(const std::string& message, const std::string& what) {
    EXPECT_THAT(message, HasSubstr(kernel().op)) << what;
    bool named = false;
    for (const Operand& operand : kernel().operands) named = named || message.find(operand.name) != std::string::npos;
    EXPECT_TRUE(named) << what << ": " << message;
  }

  // Nothing else in the call says how long this operand is.
  bool free_length(const std::string& name) const {
    if (kernel().operands.size() == 1) return true;
    if (kernel().op == "norm_sum" || kernel().op == "block_hash") return name == "x";
    if (kernel().op == "select_top") return name == "x" && kernel().operands.back().name == "x";
    if (kernel().op == "add_at" || kernel().op == "decode_rows") return name == "y";
    if (kernel().op == "encode_rows") return name == "x";
    if (kernel().op == "pack" || kernel().op == "unpack") return name == "packed" || name == "dense";
    if (kernel().op == "keep") return name == "dense";
    if (kernel().op == "dropout") return name == "positions";
    if (kernel().op == "split_cross_entropy_statistics") return name == "logits";
    return (kernel().op == "cross_entropy" || kernel().op == "split_cross_entropy") && name == "logits" &&
           kernel().operands.back().name != "dlogits";
  }

  CpuDevice device_;
  MetaDevice meta_;
  std::vector<Buffer> buffers_;
};

// What a device refuses, meta refuses too, or a plan could pass where the run stops.
constexpr Device kDevices[] = {Device::cpu, Device::meta};

TEST_P(EveryContract, RefusesAnOperandOfAnotherShape) {
  for (const Device device : kDevices)
    for (std::size_t n = 0; n < buffers_.size(); ++n) {
      const auto& [name, shape, dtype, role, fill, gaps] = kernel().operands[n];
      std::vector<std::int64_t> extents;
      for (int i = 0; i < shape.dims(); ++i) extents.push_back(shape[i]);
      extents.back() += 1;
      std::vector<Tensor> broken = operands(device);
      broken[n] = operand(n, dtype, Shape(std::span<const std::int64_t>(extents)), device);
      if (!free_length(name)) expect_named(refusal(broken, device), name + " longer");
      const bool any_dims = kernel().op == "fill" || kernel().op == "add" || kernel().op == "cast";
      if (shape.dims() == Shape::kMaxDims || any_dims) continue;
      extents.insert(extents.begin(), 1);
      extents.back() -= 1;
      broken[n] = operand(n, dtype, Shape(std::span<const std::int64_t>(extents)), device);
      expect_named(refusal(broken, device), name + " with one dim more");
    }
}

TEST_P(EveryContract, RefusesAnOperandOfAnotherType) {
  for (const Device device : kDevices)
    for (std::size_t n = 0; n < buffers_.size(); ++n) {
      const Operand& one = kernel().operands[n];
      std::vector<Tensor> broken = operands(device);
      broken[n] = operand(n, one.dtype == DType::i32 ? DType::i64 : DType::i32, one.shape, device);
      expect_named(refusal(broken, device), one.name + " of integers on " + std::string(name_of(device)));
    }
}

TEST_P(EveryContract, RefusesAMissingOperand) {
  for (std::size_t n = 0; n < buffers_.size(); ++n) {
    const std::string& name = kernel().operands[n].name;
    const bool optional = name == "addend" || name == "bias" ? kernel().op == "matmul"
                          : name == "residual" ? kernel().op == "encode_blocks" || kernel().op == "select_top"
                          : name == "y"        ? kernel().op.find("_backward") != std::string::npos
                                               : name == "starts" || (name == "positions" && kernel().op == "rope") ||
                                              name == "dresidual" || name == "dlogits" || name == "momentum" ||
                                              (name == "weight" && (kernel().op == "adamw" || kernel().op == "sgd"));
    if (optional) continue;
    std::vector<Tensor> broken = operands();
    broken[n] = Tensor();
    const std::string message = refusal(broken);
    EXPECT_THAT(message, HasSubstr(kernel().op));
    EXPECT_THAT(message, HasSubstr(name));
  }
}

TEST_P(EveryContract, RefusesAnOperandOnAnotherDevice) {
  for (std::size_t n = 0; n < buffers_.size(); ++n) {
    const Operand& operand = kernel().operands[n];
    if (operand.shape.elements() == 0) continue;
    std::vector<Tensor> broken = operands();
    broken[n] = Tensor(nullptr, operand.dtype, Device::meta, operand.shape);
    const std::string message = refusal(broken);
    EXPECT_THAT(message, HasSubstr(kernel().op));
    EXPECT_THAT(message, HasSubstr(operand.name));
    EXPECT_THAT(message, HasSubstr("meta"));
  }
}

// One case for each op and set of operands is enough: refusal does not depend on sizes.
std::vector<int> one_case_of_each() {
  std::set<std::string> seen;
  return cases_where([&](const KernelCase& kernel) {
    if (!kernel.plain || kernel.dtype != DType::f32 || kernel.operands[0].shape.elements() < 2) return false;
    std::string key = kernel.op;
    for (const Operand& operand : kernel.operands) key += " " + operand.name;
    return seen.insert(key).second;
  });
}

INSTANTIATE_TEST_SUITE_P(Case, EveryContract, ::testing::ValuesIn(one_case_of_each()), case_name);

class Contract : public ::testing::Test {
 protected:
  Tensor make(DType dtype, const Shape& shape) {
    buffers_.push_back(device_.memory().allocate(shape.elements() * size_of(dtype), Tag::data));
    if (buffers_.back().bytes() > 0) std::memset(buffers_.back().data(), 0, buffers_.back().bytes());
    return view(buffers_.back(), dtype, shape);
  }
  CpuDevice device_;
  std::vector<Buffer> buffers_;
};

TEST_F(Contract, ResidualAndSumComeTogether) {
  const Tensor x = make(DType::f32, {2, 3}), y = make(DType::f32, {2, 3}), w = make(DType::f32, {3}),
               r = make(DType::f32, {2});
  EXPECT_THROW(rmsnorm_forward({.y = y, .rstd = r, .x = x, .weight = w, .eps = 0, .residual = x}, device_.stream()),
               ProgramError);
  EXPECT_THROW(rmsnorm_forward({.y = y, .rstd = r, .x = x, .weight = w, .eps = 0, .sum = x}, device_.stream()),
               ProgramError);
}

TEST_F(Contract, AnIndexOutsideItsTableIsRefused) {
  const Tensor table = make(DType::f32, {4, 3}), y = make(DType::f32, {1, 2, 3}), tokens = make(DType::i32, {1, 2});
  for (const std::int32_t bad : {-1, 4, 1 << 30}) {
    tokens.data<std::int32_t>()[1] = bad;
    EXPECT_THROW(embedding_forward({.y = y, .table = table, .tokens = tokens}, device_.stream(2)), ProgramError) << bad;
    EXPECT_THROW(embedding_backward({.dtable = table, .dy = y, .indices = tokens}, device_.stream(2)), ProgramError)
        << bad;
  }
}

TEST_F(Contract, OnlyAPartBeginsFurtherOn) {
  const Tensor table = make(DType::f32, {4, 3}), y = make(DType::f32, {1, 2, 3}), tokens = make(DType::i32, {1, 2});
  for (const auto& [part, first, refused] : {std::tuple{false, 1, true}, {true, -1, true}, {true, 1, false}}) {
    std::string message = "it ran";
    try {
      embedding_forward({.y = y, .table = table, .tokens = tokens, .part = part, .first = first}, device_.stream());
      embedding_backward({.dtable = table, .dy = y, .indices = tokens, .part = part, .first = first}, device_.stream());
    } catch (const ProgramError& error) {
      message = error.what();
    }
    EXPECT_EQ(message != "it ran", refused) << part << " " << first << ": " << message;
  }
}

TEST_F(Contract, RowsOfNormalNumbersLieApart) {
  const Tensor x = make(DType::f32, {12});
  EXPECT_NO_THROW(init_normal({.x = x, .key = 1, .row = 4, .pitch = 4}, device_.stream()));
  EXPECT_THROW(init_normal({.x = x, .key = 1, .row = 4, .pitch = 3}, device_.stream()), ProgramError);
  EXPECT_THROW(init_normal({.x = x, .key = 1, .row = -4, .pitch = 4}, device_.stream()), ProgramError);
  EXPECT_THROW(init_normal({.x = x, .key = 1, .pitch = 4}, device_.stream()), ProgramError);
}

TEST_F(Contract, DroppedRowsHavePositions) {
  const Tensor x = make(DType::f32, {2, 3}), none = make(DType::i32, {0}), one = make(DType::i32, {1});
  const auto from = [&](const Tensor& positions, std::int64_t first) {
    dropout({.y = x, .x = x, .positions = positions, .probability = 0.5, .key = 1, .first_row = first},
            device_.stream());
  };
  EXPECT_NO_THROW(from(one, 3));
  EXPECT_THROW(from(one, -1), ProgramError);
  EXPECT_THROW(from(none, 0), ProgramError);
}

TEST_F(Contract, ATargetOutsideTheVocabularyIsRefused) {
  const Tensor logits = make(DType::f32, {2, 5}), losses = make(DType::f32, {2}), targets = make(DType::i32, {2});
  const Tensor scale = make(DType::f32, {1});
  for (const std::int32_t bad : {5, -2, 1 << 30}) {
    targets.data<std::int32_t>()[1] = bad;
    EXPECT_THROW(cross_entropy({.losses = losses, .dlogits = {}, .logits = logits, .targets = targets, .scale = scale},
                               device_.stream(2)),
                 ProgramError)
        << bad;
  }
}

}  // namespace
}  // namespace lockstep::tests
