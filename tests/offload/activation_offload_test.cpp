// Moves are made between the moments that they are told, whatever the streams do in between.
//
// The tests play a step on a device of a few places: at some moment a place is written, moved out, and taken by others;
// later the contents come back, to another place, and are compared with what was written. Places are given out as
// tightly as the moments allow, so a copy that is made too early or too late has other contents. Streams of a test run
// late, in any order that their events allow.
#include "offload/activation_offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <random>

#include "base/error.h"
#include "base/integers.h"
#include "support/program.h"
#include "tensor/cpu/stream.h"
#include "tensor/host_memory.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {
namespace {

// Work that is given waits until somebody runs it.
class LateStream final : public Stream {
 public:
  LateStream() : Stream(Device::cpu) {}

  struct Mark final : Event {
    bool done() override { return reached == recorded; }
    void wait() override { ADD_FAILURE() << "the host waits"; }
    int recorded = 0, reached = 0;
  };
  std::unique_ptr<Event> make_event() override { return std::make_unique<Mark>(); }
  void record(Event& event) override {
    auto& mark = dynamic_cast<Mark&>(event);
    give([&mark, which = ++mark.recorded] { mark.reached = std::max(mark.reached, which); });
  }
  void wait(Event& event) override {
    auto& mark = dynamic_cast<Mark&>(event);
    queue_.push_back({[] {}, [&mark, which = mark.recorded] { return mark.reached >= which; }});
  }
  void synchronize() override {}
  bool runs_ahead() const override { return true; }

  void give(std::function<void()> work) {
    queue_.push_back({std::move(work), [] { return true; }});
  }
  bool is_empty() const { return queue_.empty(); }
  // The next piece of work, if it is not waiting.
  bool run_one() {
    if (queue_.empty() || !queue_.front().ready()) return false;
    const std::function<void()> work = std::move(queue_.front().work);
    queue_.pop_front();
    work();
    return true;
  }

 private:
  struct Given {
    std::function<void()> work;
    std::function<bool()> ready;
  };
  std::deque<Given> queue_;
};

// One tensor's way: written at a moment, out until another, back in from a third, read at the last.
struct Journey {
  std::size_t written = 0, gone = 0, coming = 0, read = 0;
  int place = 0, later_place = 0, elsewhere = 0;
};

// Places for all of them, each the lowest that is free.
struct Step {
  std::vector<Journey> journeys;
  std::size_t moments = 0;
  int places = 0, elsewhere = 0;
};

Step random_step(std::mt19937& random, int count) {
  Step step;
  const auto up_to = [&](std::size_t most) { return random() % (most + 1); };
  for (int i = 0; i < count; ++i) {
    Journey j;
    j.written = up_to(30);
    j.gone = j.written + 2 + up_to(3);
    j.coming = j.gone + up_to(9);
    j.read = j.coming + 1 + up_to(3);
    step.moments = std::max(step.moments, j.read + 1);
    step.journeys.push_back(j);
  }
  struct Stay {
    std::size_t first, last;  // moments
    int* place;
  };
  const auto give_places = [](std::vector<Stay> stays) {
    std::ranges::stable_sort(stays, {}, &Stay::first);
    std::vector<std::size_t> free_from;
    for (const Stay& stay : stays) {
      auto at = std::ranges::find_if(free_from, [&](std::size_t from) { return from <= stay.first; });
      if (at == free_from.end()) at = free_from.insert(at, 0);
      *at = stay.last + 1;
      *stay.place = static_cast<int>(at - free_from.begin());
    }
    return static_cast<int>(free_from.size());
  };
  std::vector<Stay> here, there;
  for (Journey& j : step.journeys) {
    here.push_back({j.written, j.gone - 1, &j.place});
    here.push_back({j.coming, j.read, &j.later_place});
    there.push_back({j.written + 1, j.read - 1, &j.elsewhere});
  }
  step.places = give_places(here);
  step.elsewhere = give_places(there);
  return step;
}

// Through rooms: as a GPU has it.
enum class PlayedOn { late_streams, host, disk, disk_through_rooms, late_disk_through_rooms };

class Journeys : public ::testing::TestWithParam<PlayedOn> {
 protected:
  // Bytes of a tensor, and where the next place begins.
  std::int64_t bytes() const { return on_disk() ? disk::kBlock + 500 : 96; }
  std::int64_t stride() const { return on_disk() ? 2 * disk::kBlock : 256; }
  bool late() const { return GetParam() == PlayedOn::late_streams || GetParam() == PlayedOn::late_disk_through_rooms; }
  bool through_rooms() const {
    return GetParam() == PlayedOn::disk_through_rooms || GetParam() == PlayedOn::late_disk_through_rooms;
  }
  bool on_disk() const { return GetParam() == PlayedOn::disk || through_rooms(); }
  Memory& elsewhere() { return on_disk() ? static_cast<Memory&>(disk_) : *host_; }
  // A room is smaller than a tensor, so that it is used twice for each.
  ActivationOffload::Options options_of(const Step& step, Memory& rooms) const {
    return {.bytes = step.elsewhere * stride(),
            .on_disk = on_disk(),
            .rooms = through_rooms() ? &rooms : nullptr,
            .room_bytes = disk::kBlock};
  }
  Stream& compute() { return late() ? static_cast<Stream&>(compute_) : cpu_; }

  std::unique_ptr<ActivationOffload> offload_of(const Step& step) {
    device_ = memory_->allocate(step.places * stride() + disk::kBlock, Tag::activation);
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(device_.data()));
    begin_ = round_up(address, disk::kBlock) - address;
    std::vector<ActivationOffload::Move> moves;
    for (const Journey& j : step.journeys) {
      moves.push_back({true, j.written + 1, j.gone, place(j.place), j.elsewhere * stride()});
      moves.push_back({false, j.coming, j.read, place(j.later_place), j.elsewhere * stride()});
    }
    std::ranges::shuffle(moves, random_);
    return std::make_unique<ActivationOffload>(options_of(step, *rooms_), moves, elsewhere(), compute(),
                                               late() ? &lanes_ : nullptr);
  }
  Tensor place(int index) const { return view(device_, DType::i32, {bytes() / 4}, (begin_ + index * stride()) / 4); }

  // What a tensor is in a round.
  std::vector<char> contents(std::size_t journey, int round) const {
    std::vector<char> all(static_cast<std::size_t>(bytes()));
    std::mt19937 random(static_cast<unsigned>(journey * 31 + static_cast<std::size_t>(round)));
    for (char& c : all) c = static_cast<char>(random());
    return all;
  }
  void give(std::function<void()> work) { late() ? compute_.give(std::move(work)) : work(); }
  // One of them may be far behind the others.
  void run_some() {
    for (unsigned i = random_() % 12; i > 0; --i) {
      LateStream* const stream = streams_[random_() % streams_.size()];
      if (stream != slow_ || random_() % 16 == 0) stream->run_one();
    }
  }
  void run_all() {
    while (std::ranges::any_of(streams_, [](LateStream* s) { return !s->is_empty(); })) {
      bool any = false;
      for (LateStream* s : streams_) any |= s->run_one();
      ASSERT_TRUE(any) << "streams wait for each other";
    }
  }
  // Up to a moment; all of it: to the end.
  void play(const Step& step, ActivationOffload& offload, int round, std::size_t end) {
    slow_ = streams_[random_() % streams_.size()];
    offload.begin();
    for (std::size_t moment = 0; moment < end; ++moment) {
      offload.reach(moment);
      for (std::size_t i = 0; i < step.journeys.size(); ++i) {
        const Journey& j = step.journeys[i];
        if (j.written == moment)
          give([this, i, round, &j] {
            std::memcpy(place(j.place).raw(), contents(i, round).data(), static_cast<std::size_t>(bytes()));
          });
        if (j.read == moment)
          give([this, i, round, &j] {
            ++compared_;
            const std::vector<char> wanted = contents(i, round);
            EXPECT_EQ(std::memcmp(place(j.later_place).raw(), wanted.data(), wanted.size()), 0)
                << "journey " << i << " of round " << round;
          });
      }
      if (late()) run_some();
    }
  }

  std::mt19937 random_{7};
  TemporaryFolder folder_;
  Ledger ledger_, offloaded_, rooms_ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_),
                          host_ = make_host_memory(Device::cpu, offloaded_),
                          rooms_ = make_host_memory(Device::cpu, rooms_ledger_);
  disk::FileMemory disk_{offloaded_, folder_.path()};
  cpu::Stream cpu_{*memory_, 1};
  LateStream compute_, up_, down_;
  std::vector<LateStream*> streams_{&compute_, &up_, &down_};
  LateStream* slow_ = nullptr;
  ActivationOffload::Lanes lanes_{
      up_,
      down_,
      {.copy =
           [](void* to, const void* from, std::int64_t bytes, Stream& stream) {
             dynamic_cast<LateStream&>(stream).give([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
           },
       .call = [](std::function<void()> call,
                  Stream& stream) { dynamic_cast<LateStream&>(stream).give(std::move(call)); }}};
  Buffer device_;
  std::int64_t begin_ = 0;
  std::int64_t compared_ = 0;
};

TEST_P(Journeys, EndWithWhatTheyBeganWith) {
  const int steps = on_disk() ? 4 : late() ? 60 : 20;
  std::int64_t shared = 0;
  for (int i = 0; i < steps; ++i) {
    const Step step = random_step(random_, 4 + i % 20);
    const auto offload = offload_of(step);
    compared_ = 0;
    for (int round = 0; round < 3; ++round) play(step, *offload, round, step.moments);
    run_all();
    const std::int64_t journeys = std::ssize(step.journeys);
    EXPECT_EQ(compared_, 3 * journeys);
    EXPECT_EQ(offload->traffic(), (ActivationOffload::Traffic{3 * journeys * bytes(), 3 * journeys * bytes()}));
    shared += 2 * journeys - step.places;
  }
  EXPECT_GT(shared, 0) << "or no place is used twice";
}

// As after an error: the next step finds nothing of the last one.
TEST_P(Journeys, MayBeLeftInTheMiddle) {
  const int steps = late() && !on_disk() ? 60 : 6;
  for (int i = 0; i < steps; ++i) {
    const Step step = random_step(random_, 16);
    const auto offload = offload_of(step);
    for (int round = 0; round < 4; ++round)
      play(step, *offload, round, round % 2 == 0 ? 7 + static_cast<std::size_t>(5 * i % 30) : step.moments);
    run_all();
    play(step, *offload, 4, 20);  // and so is the last
    run_all();
  }
}

TEST_P(Journeys, CountTheSameOnMeta) {
  const Step step = random_step(random_, 10);
  const auto real = offload_of(step);
  begin_ = 0;
  Ledger nothing, nowhere, no_room;
  const auto memory = make_memory(Device::meta, nothing), other = make_memory(Device::meta, nowhere),
             rooms = make_memory(Device::meta, no_room);
  meta::Stream stream;
  device_ = memory->allocate(step.places * stride(), Tag::activation);
  std::vector<ActivationOffload::Move> moves;
  for (const Journey& j : step.journeys) {
    moves.push_back({true, j.written + 1, j.gone, place(j.place), j.elsewhere * stride()});
    moves.push_back({false, j.coming, j.read, place(j.later_place), j.elsewhere * stride()});
  }
  ActivationOffload offload(options_of(step, *rooms), moves, *other, stream);
  offload.begin();
  offload.reach(step.moments);  // all at once
  EXPECT_EQ(offload.traffic(), (ActivationOffload::Traffic{10 * bytes(), 10 * bytes()}));
  EXPECT_EQ(nowhere.current(Tag::activation), step.elsewhere * stride());
  EXPECT_EQ(no_room.rows(), rooms_ledger_.rows());
  EXPECT_EQ(no_room.peak(), through_rooms() ? 3 * disk::kBlock : 0);  // one for each direction, and to align them
  device_ = {};
}

// A disk that fails while nobody waits for it: whatever comes next says so.
TEST(JourneysThroughRooms, NameADiskThatFailsBesideTheCompute) {
  struct BrokenDisk final : disk::RawIo {
    int depth() const override { return 64; }
    void start(const disk::RawRequest& r) override { tags.push_back(r.tag); }
    disk::RawResult next() override {
      const disk::RawResult result{tags.front(), -EIO};
      tags.pop_front();
      return result;
    }
    std::deque<decltype(disk::RawRequest::tag)> tags;
  };
  const TemporaryFolder folder;
  Ledger ledger, there, rooms_ledger;
  const auto memory = make_memory(Device::cpu, ledger), rooms = make_memory(Device::cpu, rooms_ledger);
  disk::FileMemory file(there, folder.path(), std::make_unique<BrokenDisk>());
  cpu::Stream stream(*memory, 1);
  const Buffer device = memory->allocate(disk::kBlock, Tag::activation);
  const Tensor here = view(device, DType::f32, {disk::kBlock / 4});
  ActivationOffload offload({.bytes = disk::kBlock, .on_disk = true, .rooms = rooms.get()},
                            {{true, 1, 2, here, 0}, {false, 3, 4, here, 0}}, file, stream);
  offload.begin();
  offload.reach(1);
  EXPECT_THROW(offload.reach(2), EnvironmentError);
  EXPECT_THROW(offload.begin(), EnvironmentError);
}

std::string name_of_played(const ::testing::TestParamInfo<PlayedOn>& info) {
  constexpr std::array kNames{"LateStreams", "Host", "Disk", "DiskThroughRooms", "LateDiskThroughRooms"};
  return kNames[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Places, Journeys,
                         ::testing::Values(PlayedOn::late_streams, PlayedOn::host, PlayedOn::disk,
                                           PlayedOn::disk_through_rooms, PlayedOn::late_disk_through_rooms),
                         name_of_played);

}  // namespace
}  // namespace lockstep::tests
