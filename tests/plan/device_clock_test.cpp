// The clock of devices on scripts small enough to be worked out by hand.
//
// Links have 1 GB/s, so a message of 2e9 bytes takes 2 s.
#include "plan/device_clock.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lockstep::tests {
namespace {

using StagePieceKind = StagePiece::Kind;

constexpr std::size_t kDp = static_cast<std::size_t>(MeshAxis::dp), kPp = static_cast<std::size_t>(MeshAxis::pp),
                      kTp = static_cast<std::size_t>(MeshAxis::tp);

MachineSpec hand_made_machine() {
  MachineSpec machine;
  machine.nodes = 2;
  machine.devices_per_node = 4;
  machine.intra_node = machine.inter_node = {.bandwidth = 1e9, .latency = 0};
  machine.copies = {{.size = 1, .rate = 1e9}};
  return machine;
}

StageMessage collective(MeshAxis axis, int ranks, double seconds, int nodes = 1) {
  StageMessage message;
  message.op = CommOp::all_reduce;
  message.algorithm = Algorithm::ring;
  message.group = {.axis = axis, .ranks = ranks, .nodes = nodes, .on_node = ranks / nodes};
  message.sent = static_cast<std::int64_t>(seconds * 1e9);
  return message;
}
StageMessage between_stages(CommOp op, int peer, double seconds) {
  StageMessage message;
  message.op = op;
  message.group = {.axis = MeshAxis::pp, .ranks = 2};
  message.sent = static_cast<std::int64_t>(seconds * 1e9);
  message.peer = peer;
  return message;
}

// What a stage does in each of two steps.
class HandMadeStage {
 public:
  HandMadeStage& work(double seconds) { return add({.kind = StagePieceKind::work, .seconds = seconds}); }
  HandMadeStage& phase(int index) { return add({.kind = StagePieceKind::phase, .index = index}); }
  HandMadeStage& start(int message) {
    return add({.kind = StagePieceKind::start, .index = message, .number = messages_++});
  }
  HandMadeStage& wait(int number) { return add({.kind = StagePieceKind::wait, .number = number}); }

  StageScript twice() const {
    StageScript script;
    for (int step = 0; step < 2; ++step) {
      script.pieces.push_back({.kind = StagePieceKind::step_begins});
      for (StagePiece piece : step_) {
        if (piece.number >= 0) piece.number += step * messages_;
        script.pieces.push_back(piece);
      }
      script.pieces.push_back({.kind = StagePieceKind::step_ends});
    }
    script.messages = 2 * messages_;
    return script;
  }

 private:
  HandMadeStage& add(const StagePiece& piece) {
    step_.push_back(piece);
    return *this;
  }
  std::vector<StagePiece> step_;
  int messages_ = 0;
};

WorldScript hand_made_script(std::vector<StageMessage> messages, const std::vector<HandMadeStage>& stages) {
  WorldScript script{.messages = std::move(messages), .phases = {}, .stages = {}};
  for (const HandMadeStage& stage : stages) script.stages.push_back(stage.twice());
  return script;
}

double step_seconds(const StageTimes& times) { return times.end - times.begin; }
double only_step(const WorldScript& script, const MachineSpec& machine) {
  return step_seconds(run_clock(script, machine)[0][0]);
}

// Step 1: stage 0 works to 2, the message moves to 3 and is known of at 3.5, stage 1 works to 6.5. In step 2 stage 0
// has worked at 5.5, and stage 1 asks at 6.5: known of at 8, and stage 1 ends at 11.
TEST(DeviceClock, AStageWaitsForWhatTheOneBeforeItSends) {
  MachineSpec machine = hand_made_machine();
  machine.intra_node.latency = 0.5;
  const auto times =
      run_clock(hand_made_script({between_stages(CommOp::send, 1, 1), between_stages(CommOp::recv, 0, 1)},
                                 {HandMadeStage().work(2).start(0).wait(0), HandMadeStage().start(1).wait(0).work(3)}),
                machine)[0];
  EXPECT_DOUBLE_EQ(times[0].begin, 3.5);
  EXPECT_DOUBLE_EQ(times[0].end, 8);
  EXPECT_DOUBLE_EQ(times[0].computed, 2);
  EXPECT_DOUBLE_EQ(times[0].waited[kPp], 2.5);
  EXPECT_DOUBLE_EQ(times[1].begin, 6.5);
  EXPECT_DOUBLE_EQ(times[1].end, 11);
  EXPECT_DOUBLE_EQ(times[1].waited[kPp], 1.5);
}

// A worker's part of a server's link: to as many servers as ranks compute its own link is just full, to more it is
// the slowest. Gradients go (2 s of a server's link each way), servers work for 1 s, and weights come.
TEST(DeviceClock, AServersLinkCarriesWhatAllThatComputeSend) {
  const auto step = [](int workers, int servers) {
    std::vector<StageMessage> messages;
    HandMadeStage worker;
    worker.work(3);
    for (const CommOp op : {CommOp::gather, CommOp::broadcast})
      for (int server = 0; server < servers; ++server) {
        StageMessage message = collective(MeshAxis::dp, workers + 1, 0);
        message.op = op;
        message.among = StageMessage::Among::link;
        message.server = server;
        message.busiest = 2'000'000'000;
        messages.push_back(message);
      }
    for (int m = 0; m < 2 * servers; ++m) worker.start(m);
    for (int m = 0; m < 2 * servers; ++m) worker.wait(m);
    WorldScript script = hand_made_script(messages, {worker});
    script.servers.push_back(HandMadeStage().start(0).wait(0).work(1).start(servers).wait(1).twice());
    script.servers_each = servers;
    return run_clock(script, hand_made_machine());
  };
  for (const int servers : {1, 2, 3}) {
    const auto times = step(3, servers);
    ASSERT_EQ(std::ssize(times), 1 + servers);
    EXPECT_DOUBLE_EQ(step_seconds(times[0][0]), 3 + 2 + 1 + 2) << servers;
    EXPECT_DOUBLE_EQ(times[0][0].waited[kDp], 5);
    for (int server = 1; server <= servers; ++server) {
      EXPECT_DOUBLE_EQ(times[static_cast<std::size_t>(server)][0].computed, 1);
      EXPECT_DOUBLE_EQ(times[static_cast<std::size_t>(server)][0].waited[kDp], 3 + 2 + 2);
    }
  }
  EXPECT_DOUBLE_EQ(step_seconds(step(3, 6)[0][0]), 3 + 4 + 1 + 4) << "a worker sends to six servers";
}

TEST(DeviceClock, AMessageBehindWorkCostsNothing) {
  const WorldScript script =
      hand_made_script({collective(MeshAxis::dp, 4, 2)}, {HandMadeStage().start(0).work(5).wait(0)});
  const StageTimes times = run_clock(script, hand_made_machine())[0][0];
  EXPECT_DOUBLE_EQ(step_seconds(times), 5);
  EXPECT_DOUBLE_EQ(times.waited[kDp], 0);
}

TEST(DeviceClock, WhatOfAMessageIsNotHiddenIsWaitedFor) {
  const WorldScript script =
      hand_made_script({collective(MeshAxis::dp, 4, 2)}, {HandMadeStage().start(0).work(0.5).wait(0).work(1)});
  const StageTimes times = run_clock(script, hand_made_machine())[0][0];
  EXPECT_DOUBLE_EQ(step_seconds(times), 3);
  EXPECT_DOUBLE_EQ(times.waited[kDp], 1.5);
}

// In 2 s beside the message 2 / 1.5 s of the work are done.
TEST(DeviceClock, WorkBesideAMessageIsSlower) {
  MachineSpec machine = hand_made_machine();
  machine.overlap_slowdown = 0.5;
  const WorldScript script =
      hand_made_script({collective(MeshAxis::dp, 4, 2)}, {HandMadeStage().start(0).work(5).wait(0)});
  EXPECT_NEAR(only_step(script, machine), 2 + 5 - 2 / 1.5, 1e-12);
}

TEST(DeviceClock, MessagesOfOneChannelGoOneAfterTheOther) {
  MachineSpec machine = hand_made_machine();
  machine.intra_node.latency = 1;
  const WorldScript script =
      hand_made_script({collective(MeshAxis::dp, 4, 2)}, {HandMadeStage().start(0).start(0).wait(0).wait(1)});
  EXPECT_DOUBLE_EQ(only_step(script, machine), 2 + 1 + 2 + 1);
}

TEST(DeviceClock, MessagesOfTwoChannelsShareALink) {
  MachineSpec machine = hand_made_machine();
  machine.intra_node.latency = 1;
  const WorldScript script = hand_made_script({collective(MeshAxis::dp, 4, 2), collective(MeshAxis::dp, 2, 2)},
                                              {HandMadeStage().start(0).start(1).wait(0).wait(1)});
  EXPECT_DOUBLE_EQ(only_step(script, machine), 4 + 1);
}

// A message of 1 s is over after 2 s of half the link; the one of 3 s then has the link to itself.
TEST(DeviceClock, AMessageHasTheLinkToItselfWhenTheOtherIsOver) {
  const WorldScript script = hand_made_script({collective(MeshAxis::dp, 4, 1), collective(MeshAxis::dp, 2, 3)},
                                              {HandMadeStage().start(0).start(1).wait(0).work(0.25).wait(1)});
  const StageTimes times = run_clock(script, hand_made_machine())[0][0];
  EXPECT_DOUBLE_EQ(step_seconds(times), 4);
  EXPECT_DOUBLE_EQ(times.waited[kDp], 2 + 1.75);
}

TEST(DeviceClock, LinksOfTwoLevelsAreNotShared) {
  const WorldScript script = hand_made_script({collective(MeshAxis::dp, 4, 2), collective(MeshAxis::dp, 8, 2, 2)},
                                              {HandMadeStage().start(0).start(1).wait(0).wait(1)});
  EXPECT_DOUBLE_EQ(only_step(script, hand_made_machine()), 2);
}

TEST(DeviceClock, AStageSendsWhileItReceives) {
  const WorldScript script = hand_made_script(
      {between_stages(CommOp::send, 1, 2), between_stages(CommOp::recv, 1, 2), between_stages(CommOp::send, 0, 2),
       between_stages(CommOp::recv, 0, 2)},
      {HandMadeStage().start(0).start(1).wait(0).wait(1), HandMadeStage().start(2).start(3).wait(0).wait(1)});
  const auto times = run_clock(script, hand_made_machine());
  for (const StageTimes& stage : times[0]) EXPECT_DOUBLE_EQ(step_seconds(stage), 2);
}

// Two stages send 1 s to each other and wait: alone each keeps the rate, and with a share of it while both move it
// takes as many times as long.
TEST(DeviceClock, SendsThatMeetOnALinkKeepTheShareOfItsFile) {
  const std::vector<StageMessage> messages = {between_stages(CommOp::send, 1, 1), between_stages(CommOp::recv, 1, 1),
                                              between_stages(CommOp::send, 0, 1), between_stages(CommOp::recv, 0, 1)};
  HandMadeStage first, second;
  first.start(0).start(1).wait(0).wait(1);
  second.start(2).start(3).wait(0).wait(1);
  const WorldScript script = hand_made_script(messages, {first, second});
  MachineSpec machine = hand_made_machine();
  EXPECT_NEAR(only_step(script, machine), 1, 1e-9);
  for (const double share : {0.5, 0.25}) {
    machine.intra_node.both_ways = share;
    EXPECT_NEAR(only_step(script, machine), 1 / share, 1e-9);
  }
}

// What passes stage 1 on its way does not meet: it receives from stage 0 while it sends to stage 2.
TEST(DeviceClock, SendsOfThreeStagesInOneDirectionDoNotMeet) {
  const std::vector<StageMessage> messages = {between_stages(CommOp::send, 1, 1), between_stages(CommOp::recv, 0, 1),
                                              between_stages(CommOp::send, 2, 1), between_stages(CommOp::recv, 1, 1)};
  HandMadeStage first, second, third;
  first.start(0).wait(0);
  second.start(1).start(2).wait(0).wait(1);
  third.start(3).wait(0);
  const WorldScript script = hand_made_script(messages, {first, second, third});
  MachineSpec machine = hand_made_machine();
  const double alone = only_step(script, machine);
  machine.intra_node.both_ways = 0.5;
  EXPECT_NEAR(only_step(script, machine), alone, 1e-9);
}

TEST(DeviceClock, AWaitThatNeverEndsIsAnError) {
  const WorldScript script = hand_made_script({between_stages(CommOp::recv, 1, 1)},
                                              {HandMadeStage().start(0).wait(0), HandMadeStage().work(1)});
  EXPECT_THROW(run_clock(script, hand_made_machine()), ProgramError);
}

// 1 s, then a message of 2 s beside 0.5 s, then 1 s: 1.5 s of the message are waited for. A slow rank's own work takes
// longer, and its messages do not.
TEST(DeviceClock, APhaseExposesWhatItsOwnWorkDoesNotHide) {
  WorldScript script = hand_made_script({collective(MeshAxis::tp, 2, 2)}, {HandMadeStage().phase(0)});
  script.phases.push_back({.pieces = {{.kind = StagePieceKind::work, .seconds = 1},
                                      {.kind = StagePieceKind::start, .index = 0, .number = 0},
                                      {.kind = StagePieceKind::work, .seconds = 0.5},
                                      {.kind = StagePieceKind::wait, .number = 0},
                                      {.kind = StagePieceKind::work, .seconds = 1}},
                           .work = {}});
  const MachineSpec machine = hand_made_machine();
  const PhaseTime phase = time_of(script.phases[0], {price_of(script.messages[0], machine)}, script.messages, 0);
  EXPECT_DOUBLE_EQ(phase.computed, 2.5);
  EXPECT_DOUBLE_EQ(phase.waited[kTp], 1.5);
  EXPECT_DOUBLE_EQ(phase.seconds(), 4);

  EXPECT_DOUBLE_EQ(only_step(script, machine), 4);
  const StageTimes slow = run_clock(script, machine, {.replicas = {{2}}})[0][0];
  EXPECT_DOUBLE_EQ(step_seconds(slow), 5 + 1.5);
  EXPECT_DOUBLE_EQ(slow.computed, 5);
  EXPECT_DOUBLE_EQ(slow.waited[kTp], 1.5);
}

// One replica has worked at 2, the other at 6; their message of 1 s begins then.
// Pieces of a product's tokens are exchanged one after the other: 3 times 1 s and 0.5 s until it is known of.
TEST(DeviceClock, CollectivesOfAPhaseWaitForTheEndOfTheOneBefore) {
  const PhaseScript phase{.pieces = {{.kind = StagePieceKind::start, .index = 0, .number = 0},
                                     {.kind = StagePieceKind::start, .index = 0, .number = 1},
                                     {.kind = StagePieceKind::start, .index = 0, .number = 2},
                                     {.kind = StagePieceKind::wait, .number = 2}},
                          .work = {}};
  const std::vector<StageMessage> messages = {collective(MeshAxis::tp, 4, 1)};
  const PhaseTime time = time_of(phase, {{.latency = 0.5, .transfer = 1}}, messages, 0);
  EXPECT_NEAR(time.waited[kTp], 4.5, 1e-9);
}

TEST(DeviceClock, KindsOfReplicasMeetWhereTheyReduce) {
  const WorldScript script =
      hand_made_script({collective(MeshAxis::dp, 4, 1)}, {HandMadeStage().work(2).start(0).wait(0)});
  const auto times = run_clock(script, hand_made_machine(), {.replicas = {{1}, {3}}});
  ASSERT_EQ(times.size(), 2u);
  EXPECT_DOUBLE_EQ(step_seconds(times[0][0]), 7);
  EXPECT_DOUBLE_EQ(step_seconds(times[1][0]), 7);
  EXPECT_DOUBLE_EQ(times[0][0].waited[kDp], 5);
  EXPECT_DOUBLE_EQ(times[1][0].waited[kDp], 1);
}

TEST(DeviceClock, JitterIsAFunctionOfTheSeedAndHasTheMeanOfOne) {
  HandMadeStage stage;
  for (int i = 0; i < 4000; ++i) stage.phase(0);
  WorldScript script = hand_made_script({}, {stage});
  script.phases.push_back({.pieces = {{.kind = StagePieceKind::work, .seconds = 1}}, .work = {}});
  const auto step = [&](std::uint64_t seed) {
    return step_seconds(run_clock(script, hand_made_machine(), {.jitter = 0.1, .seed = seed})[0][0]);
  };
  EXPECT_EQ(step(1), step(1));
  EXPECT_NE(step(1), step(2));
  EXPECT_NEAR(step(1) / 4000, 1, 5 * 0.1 / std::sqrt(4000));
}

}  // namespace
}  // namespace lockstep::tests
