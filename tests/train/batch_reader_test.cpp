// Batches that are read beside the step: always the one that is asked for.
#include "train/batch_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <random>
#include <set>
#include <stdexcept>

#include "support/tiny_specs.h"
#include "train/loop.h"

namespace lockstep::tests {
namespace {

void write_batch(std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(first * 1000 + static_cast<std::int64_t>(i));
    targets[i] = -tokens[i];
  }
}

void expect_batch(BatchReader& reader, std::int64_t first, std::size_t elements) {
  std::vector<std::int32_t> tokens(elements), targets(elements);
  write_batch(first, tokens, targets);
  EXPECT_TRUE(std::ranges::equal(reader.tokens(), tokens)) << first;
  EXPECT_TRUE(std::ranges::equal(reader.targets(), targets)) << first;
}

TEST(BatchReader, GivesTheBatchThatIsAskedFor) {
  BatchReader reader(16, write_batch);
  std::mt19937 random(7);
  std::int64_t next = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::int64_t asked = random() % 4 == 0 ? random() % 100 : next;
    reader.load(asked);
    expect_batch(reader, asked, 16);
    next = random() % 100;
    if (random() % 8 != 0) reader.read_ahead(next);
    if (random() % 8 == 0) reader.read_ahead(next = random() % 100);  // the last one counts
    if (random() % 16 == 0) std::this_thread::yield();
    expect_batch(reader, asked, 16);  // still
  }
}

TEST(BatchReader, ReadsBesideItsUser) {
  std::latch begun(1), finish(1);
  std::atomic<int> reads = 0;
  std::thread::id reader_thread;
  BatchReader reader(4, [&](std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    ++reads;
    if (first == 2) {
      reader_thread = std::this_thread::get_id();
      begun.count_down();
      finish.wait();
    }
    write_batch(first, tokens, targets);
  });
  reader.load(1);
  reader.read_ahead(2);
  begun.wait();  // for ever, if nobody reads beside this thread
  expect_batch(reader, 1, 4);
  reader.load(3);  // another one, meanwhile
  expect_batch(reader, 3, 4);
  finish.count_down();
  reader.load(2);
  expect_batch(reader, 2, 4);
  EXPECT_EQ(reads, 3) << "what was read ahead is not read again";
  EXPECT_NE(reader_thread, std::this_thread::get_id());
}

TEST(BatchReader, ThrowsWhatItsSourceThrowsWhenTheBatchIsWanted) {
  BatchReader reader(4, [](std::int64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    if (first == 13) throw std::runtime_error("no such page");
    write_batch(first, tokens, targets);
  });
  for (int i = 0; i < 200; ++i) {
    reader.load(1);
    reader.read_ahead(13);
    if (i % 2) std::this_thread::sleep_for(std::chrono::microseconds(100));
    EXPECT_THROW(reader.load(13), std::runtime_error);
    expect_batch(reader, 1, 4);
    if (i % 3) reader.read_ahead(13);  // nobody comes for it
    reader.load(2);
    expect_batch(reader, 2, 4);
    if (i % 5) reader.read_ahead(3);
  }
}

TEST(BatchReader, WithNothingToReadNeverAsks) {
  BatchReader reader(0, [](auto, auto, auto) { FAIL() << "asked"; });
  reader.read_ahead(1);
  reader.load(1);
  EXPECT_TRUE(reader.tokens().empty());
}

std::set<std::string> thread_names() {
  std::set<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    names.insert(name);
  }
  return names;
}

TEST(BatchReader, IsUsedByTheTrainingLoop) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = spec.model.vocabulary, .order = 1};
  spec.data.seq = 8;
  spec.train.global_batch = 2;
  spec.train.steps = 200;  // on a full machine the thread may be long in coming
  spec.train.save_last = false;
  spec.train.save_every = 0;
  struct Seen final : Watcher {
    void stepped(const StepRecord& record) override {
      beside[record.step] = thread_names().contains(BatchReader::kThreadName);
    }
    std::map<std::int64_t, bool> beside;
  } seen;
  EXPECT_FALSE(thread_names().contains(BatchReader::kThreadName));
  TrainingRun run(spec, Device::cpu, "");
  run.init_weights();
  Progress progress;
  train(run, progress, seen);
  EXPECT_TRUE(std::ranges::any_of(seen.beside, [](const auto& step) { return step.second; }));
}

}  // namespace
}  // namespace lockstep::tests
