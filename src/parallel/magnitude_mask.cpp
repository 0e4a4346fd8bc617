#include "parallel/magnitude_mask.h"

#include <bit>
#include <cmath>
#include <span>

#include "base/error.h"
#include "kernels/mask.h"

namespace lockstep {

namespace {

constexpr int kDigitBits = 11;

template <class T>
using Magnitude = std::conditional_t<std::is_same_v<T, double>, std::uint64_t, std::uint32_t>;

// Bits without the sign are in the order of magnitudes.
template <class T>
Magnitude<T> magnitude_of(T v) {
  constexpr int kWidth = 8 * sizeof(T);
  return std::bit_cast<Magnitude<T>>(v) & ~(Magnitude<T>{1} << (kWidth - 1));
}

void set_bit(MaskWords& words, std::int64_t i) {
  words[static_cast<std::size_t>(i / 64)] |= std::uint64_t{1} << (i % 64);
}

// No group of four is split.
void check_groups(const LogicalTensor& tensor, const std::vector<Run>& runs, bool inputs_first) {
  const std::int64_t four = inputs_first ? 4 * tensor.shape[1] : 4;  // in the tensor, from group to group
  for (const Run& run : runs) {
    const bool whole = inputs_first && run.rows() > 1
                           ? run.rows() % 4 == 0 && run.there.begin / tensor.shape[1] % 4 == 0
                           : run.there.begin % four == 0 && run.row() % four == 0;
    LOCKSTEP_CHECK(whole, "{}: a part of {} rows of {} splits groups of four inputs", tensor.name, run.rows(),
                   run.row());
  }
}

// What a rank has of one matrix, and what is known of the last element that stays.
template <class T>
class Select {
 public:
  Select(const ParameterPiece& tensor, std::vector<Run> runs, const T* weights, bool groups, bool inputs_first,
         Communicator& layers)
      : tensor_(tensor),
        runs_(std::move(runs)),
        weights_(weights),
        groups_(groups),
        inputs_first_(inputs_first),
        layers_(layers) {}

  // Sets the bits of the k elements that stay.
  void run(std::int64_t k, MaskWords& words) {
    std::vector<std::int64_t> counts;
    if (groups_) {
      count(
          3, counts, [](const Element&) { return true; }, [](const Element& e) { return e.group_class; });
      last_.group_class = take_from_top(counts, k);
    }
    const auto in_class = [this](const Element& e) { return e.group_class == last_.group_class; };
    Magnitude<T> known = 0;  // the bits of last_.magnitude that are known
    for (int shift = 8 * sizeof(T); shift > 0;) {
      const int bits = std::min(kDigitBits, shift);
      shift -= bits;
      const Magnitude<T> digit = (Magnitude<T>{1} << bits) - 1;
      count(
          std::size_t{1} << bits, counts,
          [&](const Element& e) { return in_class(e) && (e.magnitude & known) == last_.magnitude; },
          [&](const Element& e) { return (e.magnitude >> shift) & digit; });
      last_.magnitude |= static_cast<Magnitude<T>>(take_from_top(counts, k)) << shift;
      known |= digit << shift;
    }
    // Of equal ones those of the lowest index stay: k of them.
    std::int64_t known_index = 0;
    for (int shift = index_bits(); shift > 0;) {
      const int bits = std::min(kDigitBits, shift);
      shift -= bits;
      const std::int64_t digit = (std::int64_t{1} << bits) - 1;
      count(
          std::size_t{1} << bits, counts,
          [&](const Element& e) {
            return in_class(e) && e.magnitude == last_.magnitude && (e.index & known_index) == last_.index;
          },
          [&](const Element& e) { return (e.index >> shift) & digit; });
      std::size_t d = 0;
      for (; counts_known() && counts.at(d) < k; ++d) k -= counts[d];
      last_.index |= static_cast<std::int64_t>(d) << shift;
      known_index |= digit << shift;
    }
    each([&](const Element& e) {
      if (stays(e)) set_bit(words, e.here);
    });
  }

 private:
  struct Element {
    std::int64_t here = 0;  // in the flat buffer
    std::size_t group_class = 0;
    Magnitude<T> magnitude = 0;
    std::int64_t index = 0;  // in the logical tensor
  };

  bool counts_known() const { return layers_.device() != Device::meta; }
  int index_bits() const { return std::bit_width(static_cast<std::uint64_t>(tensor_.elements() - 1)); }

  bool stays(const Element& e) const {
    if (e.group_class != last_.group_class) return e.group_class > last_.group_class;
    if (e.magnitude != last_.magnitude) return e.magnitude > last_.magnitude;
    return e.index <= last_.index;
  }

  // The digit of the k-th from the top; k becomes its place among those that have that digit.
  std::size_t take_from_top(const std::vector<std::int64_t>& counts, std::int64_t& k) const {
    std::size_t d = counts.size() - 1;
    for (; counts_known() && counts.at(d) < k; --d) k -= counts[d];
    return d;
  }

  // Over all ranks that split the layer; what several have alike is counted by one of them.
  template <class Wanted, class Digit>
  void count(std::size_t digits, std::vector<std::int64_t>& counts, const Wanted& wanted, const Digit& digit) const {
    counts.assign(digits, 0);
    if (tensor_.counted)
      each([&](const Element& e) {
        if (wanted(e)) ++counts[static_cast<std::size_t>(digit(e))];
      });
    if (layers_.size() > 1)
      layers_.all_reduce(Tensor(counts.data(), DType::i64, layers_.device(), {std::ssize(counts)}))->wait();
  }

  // Calls body(element) for each element here that is not masked.
  template <class Body>
  void each(const Body& body) const {
    if (!weights_) return;
    for (const Run& run : runs_)
      for (std::int64_t row = 0; row < run.rows(); ++row)
        for (std::int64_t i = 0; i < run.row(); ++i) {
          const Element e{.here = run.here.begin + row * run.here.pitch + i,
                          .index = run.there.begin + row * run.there.pitch + i};
          const T v = weights_[e.here];
          if (std::isnan(v)) continue;
          body(Element{e.here, groups_ ? class_of(e, run) : 0, magnitude_of(v), e.index});
        }
  }

  // How many of the other three are below this one, but at most 2. What is masked is below everything, and of equal
  // ones the later.
  std::size_t class_of(const Element& e, const Run& run) const {
    const std::int64_t inputs = tensor_.shape[inputs_first_ ? 0 : 1], outputs = tensor_.shape[inputs_first_ ? 1 : 0];
    const std::int64_t place = (inputs_first_ ? e.index / outputs : e.index % inputs) % 4;
    const std::int64_t next = !inputs_first_ ? 1 : run.rows() == 1 ? outputs : run.here.pitch;
    const T* const group = weights_ + e.here - place * next;
    const auto mine = magnitude_of(group[place * next]);
    std::size_t below = 0;
    for (std::int64_t other = 0; other < 4; ++other) {
      if (other == place) continue;
      const T v = group[other * next];
      const auto its = magnitude_of(v);
      below += std::isnan(v) || its < mine || (its == mine && other > place);
    }
    return std::min<std::size_t>(below, 2);
  }

  const ParameterPiece& tensor_;
  const std::vector<Run> runs_;
  const T* const weights_;  // of the unit; none on meta
  const bool groups_, inputs_first_;
  Communicator& layers_;
  Element last_;  // that stays
};

}  // namespace

MaskWords MagnitudeMask::find(const UnitLayout& layout, const ConstTensor& weights, Communicator& layers) const {
  const bool meta = weights.device() == Device::meta;
  MaskWords words(meta ? 0 : static_cast<std::size_t>(mask_words(weights.elements())));
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    const StoredParameter& parameter = layout.parameters()[p];
    if (parameter.tied) continue;
    for (std::size_t i = 0; i < parameter.pieces.size(); ++i) {
      const ParameterPiece& piece = parameter.pieces[i];
      std::vector<Run> runs = parameter.runs_of(i);
      for (Run& run : runs) run.here.begin += layout.offset(static_cast<int>(p));
      const std::int64_t k = sparsity.kept(piece.elements(), steps);
      if (!is_masked(piece) || k == piece.elements()) {
        for (const Run& run : runs)
          for (std::int64_t row = 0; row < run.rows() && !meta; ++row)
            for (std::int64_t e = 0; e < run.row(); ++e) set_bit(words, run.here.begin + row * run.here.pitch + e);
        continue;
      }
      if (k == 0) continue;
      if (sparsity.kind == SparsityKind::two_of_four) check_groups(piece, runs, inputs_first);
      const auto select = [&](auto of) {
        using T = decltype(of);
        Select<T>(piece, std::move(runs), meta ? nullptr : weights.data<T>(),
                  sparsity.kind == SparsityKind::two_of_four, inputs_first, layers)
            .run(k, words);
      };
      weights.dtype() == DType::f64 ? select(double{}) : select(float{});
    }
  }
  return words;
}

Survivors survivors_of(const MaskWords& unit, std::int64_t begin, std::int64_t count, std::int64_t decayed) {
  LOCKSTEP_CHECK(begin % 64 == 0 && decayed % 64 == 0 && count % 64 == 0, "elements {} to {} of a mask", begin,
                 begin + count);
  Survivors found;
  for (std::int64_t i = 0; i < count / 64; ++i) {
    const std::uint64_t word = unit[static_cast<std::size_t>(begin / 64 + i)];
    found.words.push_back(word);
    found.kept += std::popcount(word);
    if (64 * i < decayed) found.decayed += std::popcount(word);
  }
  return found;
}

}  // namespace lockstep
