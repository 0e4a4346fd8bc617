// Each unit by itself in fp64: its input gradient and its weight gradients, apart, against finite differences.
#include "model/unit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/philox.h"
#include "kernels/random.h"
#include "kernels/rope.h"
#include "model/model.h"
#include "parallel/zero_shards.h"
#include "support/tiny_specs.h"
#include "tensor/cpu/stream.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kSamples = 2, kSampleTokens = 9;

// One unit of a tiny model with parameters, activations and a batch, all of them plain doubles.
class Bench {
 public:
  Bench(const ModelSpec& spec, int unit)
      : model_(spec, kSamples, kSampleTokens, DType::f64),
        unit_(model_.unit(unit)),
        index_(unit),
        memory_(make_memory(Device::cpu, ledger_)),
        cpu_(*memory_, 1),
        stream_(cpu_) {
    for (const StoredParameter& p : unit_.layout().parameters()) {
      tensors_.weights.push_back(fresh(Shape(std::span(p.shape)), 0.3));
      tensors_.gradients.push_back(fresh(Shape(std::span(p.shape)), 0));
    }
    step_ = StepActivations(model_.slots(), serial_step(model_.step_shape(1)), model_.step_shape(1), *memory_);
    fill_batch(spec);
  }

  double* slot(const std::string& name) {
    for (std::size_t i = 0; i < model_.slots().all().size(); ++i)
      if (model_.slots().all()[i].name == name) return activations()[static_cast<Slot>(i)].data<double>();
    throw std::logic_error("no slot " + name);
  }
  Call call(bool accumulate = false) { return {tensors_, activations(), batch_, stream_, accumulate}; }
  void poison_gradients() {
    for (const Tensor& g : tensors_.gradients)
      std::fill_n(g.data<double>(), g.elements(), std::numeric_limits<double>::quiet_NaN());
  }
  Tensor fresh(const Shape& shape, double std) {
    buffers_.push_back(memory_->allocate(shape.elements() * 8, Tag::workspace));
    const Tensor t = view(buffers_.back(), DType::f64, shape);
    init_normal({.x = t.reshape({shape.elements()}), .key = random_key(9, std::to_string(buffers_.size())), .std = std},
                stream_);
    return t;
  }
  std::string in() const { return "x." + std::to_string(index_); }
  std::string out() const { return "x." + std::to_string(index_ + 1); }
  std::string d_in() const { return "dx." + std::to_string(index_); }
  std::string d_out() const { return "dx." + std::to_string(index_ + 1); }
  const Model& model() const { return model_; }
  const Unit& unit() const { return unit_; }
  UnitTensors& tensors() { return tensors_; }
  const Activations& activations() const { return step_.of(0); }
  const double* losses() const { return losses_.data(); }

 private:
  void fill_batch(const ModelSpec& spec) {
    std::mt19937 random(4);
    for (std::int64_t i = 0; i < kSamples * kSampleTokens; ++i) {
      tokens_.push_back(static_cast<std::int32_t>(random() % spec.vocabulary));
      targets_.push_back(i % 5 == 3 ? -1 : static_cast<std::int32_t>(random() % spec.vocabulary));
    }
    positions_.resize(kSampleTokens);
    std::iota(positions_.begin(), positions_.end(), 0);
    const std::int64_t half = spec.head_width / 2;
    cos_ = fresh({kSampleTokens, half}, 0);
    sin_ = fresh({kSampleTokens, half}, 0);
    scale_ = 1.0 / 13;
    batch_.tokens = ConstTensor(tokens_.data(), DType::i32, Device::cpu, {kSamples, kSampleTokens});
    batch_.targets = ConstTensor(targets_.data(), DType::i32, Device::cpu, {kSamples * kSampleTokens});
    batch_.positions = ConstTensor(positions_.data(), DType::i32, Device::cpu, {kSampleTokens});
    batch_.loss_scale = ConstTensor(&scale_, DType::f64, Device::cpu, {1});
    batch_.losses = Tensor(losses_.data(), DType::f64, Device::cpu, {kSamples * kSampleTokens});
    batch_.dropout_seed = 77;
    if (spec.positions == PositionKind::rope) {
      rope_table({.cos = cos_, .sin = sin_, .positions = batch_.positions, .theta = 100}, stream_);
      batch_.rope_cos = cos_;
      batch_.rope_sin = sin_;
    }
  }

  Model model_;
  const Unit& unit_;
  int index_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  cpu::Stream cpu_;
  Stream& stream_;  // the plain type: kernels are looked up in lockstep, not in lockstep::cpu
  std::vector<Buffer> buffers_;
  UnitTensors tensors_;
  StepActivations step_;
  Batch batch_;
  std::vector<std::int32_t> tokens_, targets_, positions_;
  Tensor cos_, sin_;
  double scale_ = 1;
  std::vector<double> losses_ = std::vector<double>(kSamples * kSampleTokens);
};

std::vector<double> normals(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& v : values) v = normal(random);
  return values;
}

// d loss / d p[i] by central differences.
template <class Loss>
double slope(double* p, Loss&& loss) {
  const double kept = *p, h = 1e-5;
  *p = kept + h;
  const double above = loss();
  *p = kept - h;
  const double below = loss();
  *p = kept;
  return (above - below) / (2 * h);
}

template <class Loss>
void expect_gradient(const double* gradient, double* p, std::int64_t count, Loss&& loss, const std::string& what) {
  std::mt19937 random(8);
  const double size =
      std::sqrt(std::inner_product(gradient, gradient + count, gradient, 0.0) / static_cast<double>(count));
  for (int trial = 0; trial < 20; ++trial) {
    const std::int64_t i = static_cast<std::int64_t>(random() % count);
    EXPECT_NEAR(gradient[i], slope(p + i, loss), 2e-8 * (1 + size)) << what << " element " << i;
  }
}

class EveryUnit : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(EveryUnit, BlockGradientsAreDerivativesInputAndWeightsApart) {
  const ModelSpec& spec = GetParam().spec;
  Bench bench(spec, 1);
  const std::int64_t count = kSamples * kSampleTokens * spec.width;
  const std::vector<double> x = normals(count, 1), w = normals(count, 2);
  std::copy(x.begin(), x.end(), bench.slot(bench.in()));
  const auto loss = [&] {
    bench.unit().forward(bench.call());
    return std::inner_product(w.begin(), w.end(), bench.slot(bench.out()), 0.0);
  };

  loss();
  std::copy(w.begin(), w.end(), bench.slot(bench.d_out()));
  bench.poison_gradients();
  bench.unit().backward_input(bench.call());
  for (const Tensor& g : bench.tensors().gradients)
    for (std::int64_t i = 0; i < g.elements(); ++i)
      ASSERT_TRUE(std::isnan(g.data<double>()[i])) << "the input phase wrote a weight gradient";
  const std::vector<double> dx(bench.slot(bench.d_in()), bench.slot(bench.d_in()) + count);
  std::fill_n(bench.slot(bench.d_in()), count, 123.0);
  bench.unit().backward_weight(bench.call());
  for (std::int64_t i = 0; i < count; ++i)
    ASSERT_EQ(bench.slot(bench.d_in())[i], 123.0) << "the weight phase wrote the input gradient";
  // Every layer honours `accumulate`: a second weight phase doubles what is there.
  std::vector<std::vector<double>> once;
  for (const Tensor& g : bench.tensors().gradients)
    once.emplace_back(g.data<double>(), g.data<double>() + g.elements());
  bench.unit().backward_weight(bench.call(true));
  for (std::size_t p = 0; p < once.size(); ++p)
    for (std::size_t i = 0; i < once[p].size(); ++i)
      ASSERT_NEAR(bench.tensors().gradients[p].data<double>()[i], 2 * once[p][i], 1e-12 * (1 + std::abs(once[p][i])));

  expect_gradient(dx.data(), bench.slot(bench.in()), count, loss, "x");
  for (std::size_t p = 0; p < once.size(); ++p) {
    const StoredParameter& parameter = bench.unit().layout().parameters()[p];
    auto* values = const_cast<double*>(bench.tensors().weights[p].data<double>());
    expect_gradient(once[p].data(), values, parameter.elements(), loss, parameter.pieces[0].name);
  }
}

TEST_P(EveryUnit, HeadGradientsAreDerivativesOfTheWeightedLoss) {
  const ModelSpec& spec = GetParam().spec;
  const int last = static_cast<int>(spec.layers) + 1;
  Bench bench(spec, last);
  const std::int64_t count = kSamples * kSampleTokens * spec.width;
  const std::vector<double> x = normals(count, 1);
  std::copy(x.begin(), x.end(), bench.slot(bench.in()));
  const auto loss = [&] {
    bench.unit().forward(bench.call());
    const double* losses = bench.losses();
    return std::accumulate(losses, losses + kSamples * kSampleTokens, 0.0) / 13;
  };
  loss();
  bench.unit().backward_input(bench.call());
  bench.unit().backward_weight(bench.call());
  const std::vector<double> dx(bench.slot(bench.d_in()), bench.slot(bench.d_in()) + count);
  std::vector<std::vector<double>> gradients;
  for (const Tensor& g : bench.tensors().gradients)
    gradients.emplace_back(g.data<double>(), g.data<double>() + g.elements());
  expect_gradient(dx.data(), bench.slot(bench.in()), count, loss, "x");
  for (std::size_t p = 0; p < gradients.size(); ++p)
    expect_gradient(gradients[p].data(), const_cast<double*>(bench.tensors().weights[p].data<double>()),
                    std::ssize(gradients[p]), loss, "parameter " + std::to_string(p));
  bench.unit().forward(bench.call());
  bench.unit().forward(bench.call(true));
  const int head = bench.model().head().weight();
  for (std::size_t i = 0; i < gradients[head].size(); ++i)
    ASSERT_NEAR(bench.tensors().gradients[head].data<double>()[i], 2 * gradients[head][i], 1e-13);
}

TEST_P(EveryUnit, EmbeddingGradientsAreDerivatives) {
  const ModelSpec& spec = GetParam().spec;
  Bench bench(spec, 0);
  const std::int64_t count = kSamples * kSampleTokens * spec.width;
  const std::vector<double> w = normals(count, 2);
  const auto loss = [&] {
    bench.unit().forward(bench.call());
    return std::inner_product(w.begin(), w.end(), bench.slot(bench.out()), 0.0);
  };
  loss();
  std::copy(w.begin(), w.end(), bench.slot(bench.d_out()));
  bench.poison_gradients();
  bench.unit().backward_input(bench.call());
  bench.unit().backward_weight(bench.call());
  for (std::size_t p = 0; p < bench.tensors().gradients.size(); ++p) {
    const Tensor& g = bench.tensors().gradients[p];
    expect_gradient(g.data<double>(), const_cast<double*>(bench.tensors().weights[p].data<double>()), g.elements(),
                    loss, "table");
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, EveryUnit, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::tests
