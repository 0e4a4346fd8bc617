#include "parallel/block_coded_sum.h"

#include "kernels/elementwise.h"
#include "kernels/tree_sum.h"

namespace lockstep {

BlockForm block_form(const Compression& compression) {
  switch (compression.kind) {
    case Compression::Kind::bf16:
      return BlockForm::bf16;
    case Compression::Kind::int8:
      return BlockForm::int8;
    case Compression::Kind::onebit:
      return BlockForm::onebit;
    default:
      break;
  }
  LOCKSTEP_CHECK(false, "{} is no code of blocks", compression.text());
}

BlockCodedSum::BlockCodedSum(const Options& options, Groups groups, Memory& memory, Stream& stream)
    : options_(options),
      form_(block_form(options.form)),
      groups_(groups),
      stream_(stream),
      own_{options.pieces[static_cast<std::size_t>(groups.first.rank())],
           options.pieces[static_cast<std::size_t>(groups.first.rank()) + 1]} {
  for (std::size_t r = 0; r + 1 < options_.pieces.size(); ++r)
    counts_.push_back(word_of(options_.pieces[r + 1]) - word_of(options_.pieces[r]));
  const std::int64_t all = word_of(options_.pieces.back());
  const std::int64_t mine = counts_[static_cast<std::size_t>(groups.first.rank())];
  code_ = memory.allocate(all * 4, Tag::communication, "compressed gradients");
  received_ = memory.allocate(groups.first.size() * mine * 4, Tag::communication, "compressed gradients");
  // Words of padding are sent and never decoded: nothing that lay there before goes to others.
  fill({.y = view(code_, DType::f32, {all}), .value = 0}, stream);
}

void BlockCodedSum::encode(const ConstTensor& x, std::int64_t x_begin, const Tensor& residual, const Range& range) {
  encode_blocks({.code = words(code_, word_of(range.begin), coded_words(form_, range.elements())),
                 .residual = residual,
                 .x = x.slice(0, range.begin - x_begin, range.elements()),
                 .form = form_},
                stream_);
}

void BlockCodedSum::decode(const Tensor& y, std::int64_t y_begin, std::span<const ConstTensor> codes,
                           std::int64_t codes_begin, const Range& range) {
  std::vector<ConstTensor> parts;
  for (const ConstTensor& code : codes)
    parts.push_back(code.slice(0, word_of(range.begin) - word_of(codes_begin), coded_words(form_, range.elements())));
  decode_blocks({.y = y.slice(0, range.begin - y_begin, range.elements()),
                 .codes = parts,
                 .joins = balanced_joins(static_cast<int>(parts.size())),
                 .form = form_},
                stream_);
}

void BlockCodedSum::start(const ConstTensor& in, const Tensor& out) {
  out_ = out;
  for (const Range& range : options_.parameters)
    encode(in, 0, options_.residual ? options_.residual.slice(0, range.begin, range.elements()) : Tensor{}, range);
  const std::int64_t mine = counts_[static_cast<std::size_t>(groups_.first.rank())];
  leg_ = groups_.first.all_to_all(words(received_, 0, groups_.first.size() * mine),
                                  words(code_, 0, word_of(options_.pieces.back())), counts_);
}

// The codes of this rank have been sent: their room takes those of the sums.
void BlockCodedSum::advance() {
  leg_->wait();
  const int ranks = groups_.first.size();
  const std::int64_t mine = counts_[static_cast<std::size_t>(groups_.first.rank())];
  std::vector<ConstTensor> codes;
  for (int r = 0; r < ranks; ++r) codes.push_back(words(received_, r * mine, mine));
  const Tensor piece = options_.gathers ? out_.slice(0, own_.begin, own_.end - own_.begin) : out_;
  const std::vector<Range> parts = within(options_.parameters, own_.begin, own_.end);
  for (const Range& part : parts) decode(piece, own_.begin, codes, own_.begin, part);
  if (!options_.gathers) return;
  for (const Range& part : parts)
    encode(piece, own_.begin,
           options_.second ? options_.second.slice(0, part.begin - own_.begin, part.elements()) : Tensor{}, part);
  leg_ = groups_.second.all_gather(words(code_, 0, word_of(options_.pieces.back())),
                                   words(code_, word_of(own_.begin), mine), counts_);
}

void BlockCodedSum::finish() {
  if (!options_.gathers) return;
  leg_->wait();
  const ConstTensor all = words(code_, 0, word_of(options_.pieces.back()));
  for (const Range& range : options_.parameters) decode(out_, 0, {&all, 1}, 0, range);
}

}  // namespace lockstep
