#include "comm/nccl/host_side.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <future>

#include "base/integers.h"
#include "comm/wait_policy.h"
#include "tensor/side_stream.h"
#include "tensor/transfer.h"

namespace lockstep::nccl {

namespace {

constexpr std::int64_t kLeastStaged = 4096;

// In a piece of device memory, what comes out is after what goes in: also where they are one tensor on the host.
std::int64_t out_offset(const ConstTensor& in) { return in ? round_up(in.bytes(), kAlignment) : 0; }

class HostSide final : public Communicator {
 public:
  HostSide(Library& library, const Membership& place, const Share& share, Memory& memory,
           const HostSideOptions& options)
      : Communicator(place.rank, place.ranks, place.name, Device::cpu),
        library_(library),
        memory_(memory),
        options_(options),
        side_(memory.device()),
        ranks_(make_communicator(library, place, share, memory, side_.stream(),
                                 {options.deadline_seconds, options.staging_bytes})) {}

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { ranks_->check(); }

  // For its Pendings.
  class Staged;
  Buffer take(std::int64_t bytes);
  void give_back(Buffer buffer) { free_.push_back(std::move(buffer)); }

 private:
  Library& library_;
  Memory& memory_;
  HostSideOptions options_;
  SideStream side_;
  std::vector<Buffer> free_;  // staged before; before the ranks, whose operations may still be on them
  std::unique_ptr<Communicator> ranks_;
  Staged* at_barrier_ = nullptr;  // has not begun: nothing may overtake it
  std::int64_t barriers_ = 0;
};

class HostSide::Staged final : public Pending {
 public:
  Staged(HostSide& side, const Message& message) : side_(side), message_(message) {}
  ~Staged() override {
    if (side_.at_barrier_ == this) side_.at_barrier_ = nullptr;
    under_way_.reset();  // its stream waits, so whoever stages here next comes after it
    if (buffer_.data()) side_.give_back(std::move(buffer_));
  }

  void start_barrier(const std::string& name) {
    side_.at_barrier_ = this;
    barrier_passed_ = std::async(std::launch::async, [barrier = side_.options_.barrier, name,
                                                      deadline = message_.deadline] { barrier(name, deadline); });
  }

  // Waits for the barrier, if there is one.
  void begin() {
    if (under_way_) return;
    if (side_.at_barrier_ == this) side_.at_barrier_ = nullptr;
    Message there = message_;
    if (barrier_passed_.valid()) {
      barrier_passed_.get();
      there.deadline = 0;  // all have come
    }
    side_.library_.enter_thread();
    buffer_ = side_.take(staged_bytes(message_));
    char* const data = static_cast<char*>(buffer_.data());
    const Device device = side_.memory_.device();
    if (message_.in) {
      const Tensor in(data, message_.in.dtype(), device, message_.in.shape());
      upload(in, message_.in.raw(), side_.side_.stream());
      there.in = in;
    }
    if (message_.out)
      there.out = Tensor(data + out_offset(message_.in), message_.out.dtype(), device, message_.out.shape());
    staged_ = there.out;
    under_way_ = side_.ranks_->start(there);
  }

  bool done() override {
    if (over_) return true;
    if (barrier_passed_.valid() && barrier_passed_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return false;
    begin();
    side_.library_.enter_thread();
    return under_way_->done();
  }

  void wait() override {
    if (over_) return under_way_ ? under_way_->wait() : side_.check();
    begin();
    side_.library_.enter_thread();
    waiting::Backoff backoff(std::chrono::microseconds(2), std::chrono::microseconds(500));
    while (!under_way_->done()) backoff.pause();  // true where the group has failed, by its deadline at the latest
    under_way_->wait();
    if (message_.out) download(message_.out.raw(), staged_, side_.side_.stream());
    side_.check();  // the copy may have come after a failure
    over_ = true;
  }

  std::string waits_for() override {
    return under_way_ ? under_way_->waits_for() : fmt::format("all ranks of '{}' to meet", side_.name());
  }

 private:
  HostSide& side_;
  Message message_;
  Buffer buffer_;
  Tensor staged_;
  std::shared_future<void> barrier_passed_;  // asked again, it throws again
  std::unique_ptr<Pending> under_way_;
  bool over_ = false;
};

Communicator::Started HostSide::start(const Message& message) {
  check_message(message, rank(), size(), device());
  auto one = std::make_unique<Staged>(*this, message);
  if (!point_to_point(message.op) && at_barrier_) at_barrier_->begin();
  if (options_.barrier && !point_to_point(message.op) && message.deadline > options_.deadline_seconds && size() > 1)
    one->start_barrier(fmt::format("{} {}", name(), ++barriers_));
  else
    one->begin();
  return one;
}

Buffer HostSide::take(std::int64_t bytes) {
  const auto fits = [&](const Buffer& buffer) { return buffer.bytes() >= bytes; };
  if (const auto found = std::find_if(free_.begin(), free_.end(), fits); found != free_.end()) {
    Buffer taken = std::move(*found);
    free_.erase(found);
    return taken;
  }
  return memory_.allocate(bytes, Tag::communication, name());
}

// Its ids go over this group, and each part has a stream of its own, since another thread may use it.
std::unique_ptr<Communicator> HostSide::split(const std::function<Place(int)>& place, const std::string& name) {
  const std::vector<int> members = members_of(rank(), size(), place);
  const Share over_these = [&](std::span<const char> mine) {
    constexpr std::int64_t kWords = sizeof(Id) / 8;
    std::vector<std::int64_t> all(static_cast<std::size_t>(kWords * size()));
    std::memcpy(all.data() + kWords * rank(), mine.data(), mine.size());
    const Tensor out(all.data(), DType::i64, Device::cpu, {kWords * size()});
    all_gather(out, out.slice(0, kWords * rank(), kWords))->wait();
    const char* first = reinterpret_cast<const char*>(all.data() + kWords * members[0]);
    return std::vector<char>(first, first + sizeof(Id));
  };
  if (place(rank()).color < 0) {
    over_these(Id{});
    return nullptr;
  }
  HostSideOptions options = options_;
  if (std::ssize(members) != size()) options.barrier = {};  // which is of all ranks
  const auto at = std::find(members.begin(), members.end(), rank()) - members.begin();
  return make_host_side(library_, {static_cast<int>(at), static_cast<int>(members.size()), name}, over_these, memory_,
                        options);
}

}  // namespace

std::int64_t staged_bytes(const Message& message) {
  const std::int64_t bytes = out_offset(message.in) + (message.out ? message.out.bytes() : 0);
  return std::max(kLeastStaged, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes))));
}

std::unique_ptr<Communicator> make_host_side(Library& library, const Membership& place, const Share& share,
                                             Memory& memory, const HostSideOptions& options) {
  return std::make_unique<HostSide>(library, place, share, memory, options);
}

}  // namespace lockstep::nccl
