// RUN/tensorboard/events.out.tfevents.TIME.HOST: a run's numbers as TensorBoard reads them.
//
// A file is a sequence of records (TensorFlow's TFRecord): the length of the data as 8 bytes, the masked CRC32C of
// these, the data, and its masked CRC32C as 4 bytes each, all little-endian. Each record is an Event of
// tensorflow/core/util/event.proto in protobuf's wire format. Of that message few fields are needed: the time, the
// step, the version, scalars by tag and the mark of a start; so they are written by hand, and no protobuf library is
// linked.
//
// The first records are the version ("brain.Event:2") and a SessionLog START with the next step: TensorBoard drops what
// files before it say of that step and later ones. Each time a run resumes it writes a new file, whose name sorts after
// those of the files that are there.
//
// Records wait in memory until the first one after kFlush or kMostWaiting bytes, and are then appended. A disk that
// does not take them keeps them waiting within a bound; beyond it whole records are dropped (appended_file.h). Only
// construction throws: EnvironmentError. Used by one thread at a time.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry/appended_file.h"
#include "telemetry/step_record.h"

namespace lockstep {

using Scalars = std::vector<std::pair<std::string, double>>;  // by tag

class TensorboardFile {
 public:
  static constexpr std::chrono::milliseconds kFlush{2000};
  static constexpr std::size_t kMostWaiting = 64 << 10;

  // Makes the folder where it is missing. `first_step`: steps that were done before.
  TensorboardFile(const std::filesystem::path& folder, std::int64_t first_step,
                  std::chrono::milliseconds flush = kFlush);
  ~TensorboardFile() { flush(); }

  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void flush();
  const std::string& failure() const { return file_.failure(); }  // why not all is written; empty: all is
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(std::int64_t step, double time, const Scalars& scalars);
  void append(const std::string& event);

  std::filesystem::path path_;
  AppendedFile file_;
  std::chrono::milliseconds flush_;
  std::string waiting_;
  std::chrono::steady_clock::time_point flushed_ = std::chrono::steady_clock::now();
};

// What a step shows: train/loss, train/lr, train/grad_norm, speed/tokens_per_s, speed/mfu, speed/step_ms and, of every
// use of time that any rank had, time/USE, its share of all ranks' time.
Scalars scalars_of(const StepRecord& record);

// The data of TFRecord checksums: CRC32C (Castagnoli), rotated right by 15 bits, plus 0xa282ead8.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep
