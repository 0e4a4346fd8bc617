#include "parallel/activation_codes.h"

#include <algorithm>
#include <cmath>

#include "parallel/block_coded_sum.h"

namespace lockstep {

namespace {

// Receives of activations that are under way at once, at most: each until the phase that reads it.
std::int64_t most_arriving(const std::vector<Action>& actions, const StepShape& shape) {
  std::int64_t now = 0, most = 0;
  for (const Action& a : actions) {
    if (is_handed_on(a.kind) && is_receive(a.kind)) most = std::max(most, ++now);
    if (a.kind == ActionKind::forward && shape.comes(a.unit)) --now;
    if (a.kind == ActionKind::backward_input && shape.goes(a.unit)) --now;
  }
  return most;
}

}  // namespace

RowCode row_code(const Compression& form, std::int64_t width) {
  if (form.kind == Compression::Kind::topk)
    return {.largest = static_cast<std::int64_t>(std::ceil(form.share * static_cast<double>(width)))};
  return {.blocks = block_form(form)};
}

ActivationCodes::ActivationCodes(const Options& options, Memory& memory, Stream& stream)
    : stream_(stream),
      form_(row_code(options.form, options.width)),
      rows_(options.rows),
      words_(row_words(form_, options.width, options.dtype)) {
  for (const Action& a : options.actions)
    if (is_handed_on(a.kind) && is_send(a.kind)) {
      Sending& to = sending_[other_end(a, options.shape)];
      to.places = std::min<std::int64_t>(to.places + 1, kSendsInFlight);
    }
  for (auto& [stage, to] : sending_) {
    to.first = first_room_;
    first_room_ += to.places;
  }
  rooms_ = most_arriving(options.actions, options.shape);
  codes_ = memory.allocate((first_room_ + rooms_) * rows_ * words_ * 4, Tag::communication, "compressed activations");
  begin();
}

void ActivationCodes::begin() {
  arriving_.clear();
  free_rooms_.clear();
  for (std::int64_t i = 0; i < rooms_; ++i) free_rooms_.push_back(first_room_ + i);
}

Tensor ActivationCodes::code(std::int64_t place) const {
  return view(codes_, DType::i32, {rows_, words_}, place * rows_ * words_);
}

ConstTensor ActivationCodes::encode(const ConstTensor& x, int to) {
  Sending& sending = sending_.at(to);
  const Tensor sent = code(sending.first + sending.next++ % sending.places);
  encode_rows({.code = sent, .x = x, .form = form_}, stream_);
  return sent;
}

Tensor ActivationCodes::room_for(const Action& receive) {
  LOCKSTEP_CHECK(!free_rooms_.empty(), "{} has no room among {}", to_string(receive), rooms_);
  const std::int64_t room = free_rooms_.back();
  free_rooms_.pop_back();
  arriving_[key(receive)] = room;
  return code(room);
}

void ActivationCodes::decode(const Action& receive, const Tensor& y) {
  const auto found = arriving_.find(key(receive));
  LOCKSTEP_CHECK(found != arriving_.end(), "{} was not begun", to_string(receive));
  decode_rows({.y = y, .code = code(found->second), .form = form_}, stream_);
  free_rooms_.push_back(found->second);
  arriving_.erase(found);
}

}  // namespace lockstep
