#include "offload/activation_offload.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/integers.h"
#include "tensor/transfer.h"

namespace lockstep {

using disk::FileMemory;

ActivationOffload::ActivationOffload(const Options& options, const std::vector<Move>& moves, Memory& elsewhere,
                                     Stream& compute, const Lanes* lanes)
    : options_(options),
      compute_(compute),
      lanes_(lanes),
      buffer_(elsewhere.allocate(options.bytes, Tag::activation)),
      disk_(lanes ? &lanes->means : nullptr),
      reached_(compute.make_event()) {
  LOCKSTEP_CHECK(!options.on_disk || options.rooms || compute.device() != Device::cuda,
                 "a disk beside a GPU without room");
  std::map<std::tuple<std::size_t, std::size_t, bool>, std::vector<Move>> together;
  for (const Move& move : moves) {
    LOCKSTEP_CHECK(move.begin < move.end && move.here.contiguous() && move.there >= 0 &&
                       move.there + move.here.bytes() <= options.bytes,
                   "a move of {} bytes to {} of {}, from moment {} to {}", move.here.bytes(), move.there, options.bytes,
                   move.begin, move.end);
    room_bytes_ = std::max(room_bytes_, std::min(options.room_bytes, round_up(move.here.bytes(), disk::kBlock)));
    together[{move.begin, move.end, move.out}].push_back(move);
  }
  if (options.on_disk && options.rooms) {
    rooms_ = options.rooms->allocate(2 * room_bytes_ + disk::kBlock, Tag::workspace, "offload");
    rooms_begin_ = disk::bytes_to_block(rooms_);
  }
  for (auto& [when, of_them] : together) {
    const auto& [begin, end, out] = when;
    batches_.push_back({out, begin, end, std::move(of_them), compute.make_event(), {}});
  }
  for (std::size_t i = 0; i < batches_.size(); ++i) by_end_.push_back(i);
  std::ranges::stable_sort(by_end_, {}, [&](std::size_t i) { return batches_[i].end; });
  finished_ = by_end_.size();  // as if a step had been
  started_ = batches_.size();
  if (compute.device() == Device::cuda && !lanes)
    for (std::optional<SideStream>* side : {&up_, &down_}) side->emplace(Device::cuda);
}

// Bytes are still read and written until then.
ActivationOffload::~ActivationOffload() {
  const auto try_to = [](auto&& work) {
    try {
      work();
    } catch (...) {
    }
  };
  for (Batch& batch : batches_)
    while (!batch.moving.empty()) try_to([&] { finish(batch); });
  for (const bool out : {false, true}) try_to([&] { lane(out).synchronize(); });
}

Stream& ActivationOffload::lane(bool out) {
  if (lanes_) return out ? lanes_->down : lanes_->up;
  std::optional<SideStream>& side = out ? down_ : up_;
  return side ? side->stream() : compute_;
}

void ActivationOffload::begin() {
  disk_.rethrow();
  for (; finished_ < by_end_.size(); ++finished_)
    if (by_end_[finished_] < started_) finish(batches_[by_end_[finished_]]);
  started_ = finished_ = next_ = 0;
}

void ActivationOffload::reach(std::size_t moment) {
  LOCKSTEP_CHECK(moment >= next_, "moment {} comes after {}", moment, next_);
  disk_.rethrow();
  for (; next_ <= moment; ++next_) {
    for (; finished_ < by_end_.size() && batches_[by_end_[finished_]].end == next_; ++finished_)
      finish(batches_[by_end_[finished_]]);
    for (; started_ < batches_.size() && batches_[started_].begin == next_; ++started_) start(batches_[started_]);
  }
}

void ActivationOffload::start(Batch& batch) {
  Stream& stream = lane(batch.out);
  compute_.record(*reached_);
  stream.wait(*reached_);
  for (const Move& move : batch.moves) {
    (batch.out ? traffic_.from_device : traffic_.to_device) += move.here.bytes();
    if (compute_.device() != Device::meta) start_copy(batch, move);
  }
  stream.record(*batch.done);
}

void ActivationOffload::start_copy(Batch& batch, const Move& move) {
  Stream& stream = lane(batch.out);
  const std::int64_t bytes = move.here.bytes();
  void *const here = move.here.raw(), *const there = static_cast<char*>(buffer_.data()) + move.there;
  if (rooms_.memory()) {
    copy_through_room(move);
  } else if (options_.on_disk) {
    FileMemory& file = FileMemory::of(there);
    batch.moving.push_back(batch.out ? file.start_write(there, here, bytes) : file.start_read(here, there, bytes));
  } else if (lanes_) {
    lanes_->means.copy(batch.out ? there : here, batch.out ? here : there, bytes, stream);
  } else if (batch.out) {
    download_later(there, move.here, stream);
  } else {
    upload_later(move.here, there, stream);
  }
}

void ActivationOffload::copy_through_room(const Move& move) {
  const DType type = move.here.dtype();
  const std::int64_t size = size_of(type), all = move.here.elements();
  for (std::int64_t begin = 0, count = 0; begin < all; begin += count) {
    count = std::min(room_bytes_ / size, all - begin);
    const Tensor here = move.here.slice(0, begin, count);
    const Tensor room = view(rooms_, type, {count}, (rooms_begin_ + (move.out ? room_bytes_ : 0)) / size);
    const Tensor there = view(buffer_, type, {count}, move.there / size + begin);
    if (move.out)
      disk_.take_back(there, room, here, lane(true));
    else
      disk_.bring(here, room, there, lane(false));
  }
}

void ActivationOffload::finish(Batch& batch) {
  while (!batch.moving.empty()) {
    const FileMemory::Moving moving = batch.moving.back();
    batch.moving.pop_back();
    FileMemory::of(buffer_.data()).finish(moving);
  }
  compute_.wait(*batch.done);
}

}  // namespace lockstep
