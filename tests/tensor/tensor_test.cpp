// Shapes and views: which element a tensor's index means, and which calls are refused.
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace lockstep {
namespace {

TEST(Shape, KnowsItsExtents) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.dims(), 3);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(s[-1], 4);
  EXPECT_EQ(s[-3], 2);
  EXPECT_EQ(s.elements(), 24);
  EXPECT_EQ(to_string(s), "(2, 3, 4)");
  EXPECT_EQ(fmt::format("{}", s), "(2, 3, 4)");
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{5, 0, 2}.elements()), 0);
}

TEST(Shape, IsEqualWhenItsExtentsAre) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE((Shape{2, 0}), (Shape{2}));
}

TEST(Shape, RefusesFiveDimsAndNegativeExtents) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), ProgramError);
  EXPECT_THROW((Shape{2, -1}), ProgramError);
}

class TensorView : public ::testing::Test {
 protected:
  TensorView() : data_(120) { std::iota(data_.begin(), data_.end(), 0.0f); }
  Tensor whole(const Shape& shape) { return Tensor(data_.data(), DType::f32, Device::cpu, shape); }

  // The element at an index, through the strides.
  static float at(const ConstTensor& t, std::initializer_list<std::int64_t> index) {
    std::int64_t offset = 0;
    int dim = 0;
    for (const std::int64_t i : index) offset += i * t.stride(dim++);
    return t.data<float>()[offset];
  }

  std::vector<float> data_;
};

TEST_F(TensorView, IsRowMajor) {
  const Tensor t = whole({2, 3, 4, 5});
  EXPECT_EQ(t.stride(0), 60);
  EXPECT_EQ(t.stride(-1), 1);
  EXPECT_EQ(at(t, {1, 2, 3, 4}), 119);
  EXPECT_EQ(at(t, {0, 1, 2, 3}), 20 + 10 + 3);
  EXPECT_EQ(t.elements(), 120);
  EXPECT_EQ(t.bytes(), 480);
  EXPECT_TRUE(t.contiguous());
}

TEST_F(TensorView, ASliceIsTheSameElements) {
  const Tensor t = whole({4, 5, 6});
  const Tensor s = t.slice(1, 2, 3);
  EXPECT_EQ(s.shape(), (Shape{4, 3, 6}));
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 3; ++j)
      for (std::int64_t k = 0; k < 6; ++k) EXPECT_EQ(at(s, {i, j, k}), at(t, {i, j + 2, k}));
  EXPECT_FALSE(s.contiguous());
  EXPECT_EQ(at(t.slice(-1, 5, 1), {3, 4, 0}), 119);
  EXPECT_EQ(at(s.slice(0, 1, 2).slice(2, 3, 2), {1, 2, 1}), at(t, {2, 4, 4}));
  EXPECT_TRUE(t.slice(0, 1, 2).contiguous());
  EXPECT_EQ(t.slice(1, 5, 0).elements(), 0);
}

TEST_F(TensorView, ASliceWritesThroughToTheWhole) {
  const Tensor t = whole({4, 5});
  t.slice(0, 2, 1).slice(1, 3, 1).data<float>()[0] = -7;
  EXPECT_EQ(data_[13], -7);
}

TEST_F(TensorView, ASliceOutsideIsRefused) {
  const Tensor t = whole({4, 5});
  EXPECT_THROW(t.slice(0, 3, 2), ProgramError);
  EXPECT_THROW(t.slice(0, -1, 2), ProgramError);
  EXPECT_THROW(t.slice(0, 1, -1), ProgramError);
  EXPECT_THROW(t.slice(2, 0, 1), ProgramError);
  EXPECT_THROW(t.slice(-3, 0, 1), ProgramError);
}

TEST_F(TensorView, ASplitIsTheSameElementsForAnyStrides) {
  const Tensor t = whole({4, 30}).slice(1, 2, 24);
  const Tensor s = t.split(1, 4, 6);
  EXPECT_EQ(s.shape(), (Shape{4, 4, 6}));
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 24; ++j) EXPECT_EQ(at(s, {i, j / 6, j % 6}), at(t, {i, j}));
  const Tensor first = t.split(0, 2, 2);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(at(first, {i / 2, i % 2, 7}), at(t, {i, 7}));
  EXPECT_EQ(at(t.split(-1, 2, 12), {3, 1, 11}), at(t, {3, 23}));
  EXPECT_THROW(t.split(1, 5, 5), ProgramError);
  EXPECT_THROW(whole({2, 3, 4, 5}).split(3, 1, 5), ProgramError);
}

TEST_F(TensorView, AReshapeIsTheSameElementsInOrder) {
  const Tensor t = whole({4, 30}).slice(0, 1, 2).reshape({3, 20});
  EXPECT_EQ(at(t, {2, 19}), 89);
  EXPECT_TRUE(t.contiguous());
  EXPECT_THROW(whole({4, 30}).slice(1, 0, 15).reshape({60}), ProgramError);
  EXPECT_THROW(whole({4, 30}).reshape({121}), ProgramError);
}

TEST_F(TensorView, NarrowedRowsBeginWhereTheirRowsDo) {
  const Tensor t = whole({3, 4, 10}).slice(2, 1, 7);
  const Tensor n = t.narrowed(DType::bf16);
  EXPECT_EQ(n.shape(), t.shape());
  EXPECT_EQ(n.dtype(), DType::bf16);
  EXPECT_EQ(n.stride(2), 1);
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 4; ++j)
      EXPECT_EQ(static_cast<void*>(n.data<bf16>() + i * n.stride(0) + j * n.stride(1)),
                static_cast<void*>(t.data<float>() + i * t.stride(0) + j * t.stride(1)));
  EXPECT_EQ(n.slice(1, 2, 1).raw(), t.slice(1, 2, 1).raw());
  EXPECT_EQ(t.narrowed(DType::f32).stride(0), t.stride(0));
  EXPECT_EQ(whole({5}).narrowed(DType::f16).stride(0), 1);
  EXPECT_THROW(t.narrowed(DType::f64), ProgramError);
  EXPECT_THROW(n.narrowed(DType::f32), ProgramError);
  EXPECT_EQ(Tensor(nullptr, DType::f32, Device::meta, {4, 30}).narrowed(DType::bf16).stride(0), 60);
}

TEST_F(TensorView, DimsOfOneDoNotBreakContiguity) {
  EXPECT_TRUE(whole({4, 30}).slice(0, 2, 1).contiguous());
  EXPECT_TRUE(whole({4, 5, 6}).slice(0, 2, 1).slice(1, 1, 2).contiguous());
  EXPECT_FALSE(whole({4, 5, 6}).slice(2, 2, 1).contiguous());
}

TEST_F(TensorView, AWritableViewIsAReadableOneWithItsStrides) {
  const Tensor t = whole({4, 30}).slice(1, 3, 5);
  const ConstTensor c = t;
  EXPECT_EQ(c.shape(), t.shape());
  EXPECT_EQ(c.stride(0), 30);
  EXPECT_EQ(at(c, {3, 4}), at(t, {3, 4}));
  EXPECT_TRUE(ConstTensor(Tensor()).none());
  EXPECT_FALSE(c.none());
}

TEST_F(TensorView, NoneIsNoTensorAtAll) {
  const Tensor none;
  EXPECT_TRUE(none.none());
  EXPECT_FALSE(none);
  EXPECT_TRUE(whole({0, 3}));  // an empty tensor is one all the same
}

TEST_F(TensorView, ReadingAsAnotherTypeIsRefused) {
  EXPECT_THROW(whole({2}).data<double>(), ProgramError);
  EXPECT_THROW(whole({2}).data<bf16>(), ProgramError);
  EXPECT_THROW(whole({2}).data<std::int32_t>(), ProgramError);
}

TEST_F(TensorView, OnMetaThePointerStaysNull) {
  const Tensor t(nullptr, DType::bf16, Device::meta, {4, 30});
  EXPECT_EQ(t.slice(0, 2, 1).raw(), nullptr);
  EXPECT_EQ(t.slice(1, 2, 4).split(1, 2, 2).raw(), nullptr);
  EXPECT_EQ(t.reshape({120}).raw(), nullptr);
  EXPECT_EQ(t.slice(1, 2, 4).stride(0), 30);
  EXPECT_EQ(t.device(), Device::meta);
}

TEST(BufferView, IsCheckedAgainstTheBuffer) {
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  const Buffer buffer = memory->allocate(1000, Tag::data);  // rounded up to 1024
  const Tensor t = view(buffer, DType::f32, {10, 5}, 20);
  EXPECT_EQ(static_cast<char*>(t.raw()) - static_cast<char*>(buffer.data()), 80);
  EXPECT_NO_THROW(view(buffer, DType::f64, {128}));
  EXPECT_THROW(view(buffer, DType::f64, {129}), ProgramError);
  EXPECT_THROW(view(buffer, DType::f64, {1}, 128), ProgramError);
  EXPECT_THROW(view(Buffer(), DType::f32, {1}), ProgramError);
}

}  // namespace
}  // namespace lockstep
