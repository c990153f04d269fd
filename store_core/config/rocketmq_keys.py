# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's keys of settings by the type that Java declares (releases 4.9.7, 5.3.3 and 5.5.1).

Read from the setters of ``MessageStoreConfig``, and of ``BrokerConfig``, ``NettyServerConfig``,
``NettyClientConfig`` and ``AuthConfig``, as ``MixAll.properties2Object`` does.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


STORE_KEYS: dict[str, frozenset[str]] = {
    "int": _names(
        """
        accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio
        batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt cleanResourceInterval
        combineCQMaxExtraSearchCommitLogFiles commitCommitLogLeastPages
        commitCommitLogThoroughInterval commitIntervalCommitLog commitLogRecoverMaxNum
        commitLogSwapMapReserveFileNum compactionCqMappedFileSize compactionMappedFileSize
        compactionScheduleInternal compactionThreadNum correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval defaultQueryMaxNum deleteCommitLogFilesInterval
        deleteConsumeQueueFilesInterval deleteFileBatchMax destroyMapedFileIntervalForcibly
        disappearTimeAfterStart diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio
        diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads fileReservedTime
        flushCommitLogLeastPages flushCommitLogThoroughInterval flushConsumeQueueLeastPages
        flushConsumeQueueThoroughInterval flushIntervalCommitLog flushIntervalConsumeQueue
        flushLeastPagesWhenWarmMapedFile haHousekeepingInterval haListenPort haMaxGapNotInSync
        haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize inSyncReplicas
        logicQueueSwapMapReserveFileNum mapedFileSizeCommitLog mapedFileSizeConsumeQueue
        mappedFileSizeCommitLog mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt
        mappedFileSizeTimerLog mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
        maxBatchDeleteFilesNum maxCheckMessageReuseBufferSize maxConsumeQueueScan
        maxFilterMessageSize maxHashSlotNum maxIndexNum maxLmqConsumeQueueNum maxMessageSize
        maxMsgsNumBatch maxOffsetMapSize maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays
        maxTopicLength maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
        maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory minInSyncReplicas
        pullBatchMaxMessageCount putMessageTimeout putMsgIndexHightWater
        redeleteHangedFileInterval replicasPerDiskPartition rocksdbFlushWalFrequency
        rocksdbMaxSizeAmplificationPercent sampleCountThreshold sampleSteps
        scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
        sharedByteBufferNum slaveTimeout spinLockCollisionRetreatOptimalDegree syncFlushTimeout
        timerColdDataCheckIntervalMs timerCongestNumEachSlot timerFlushIntervalMs
        timerGetMessageThreadNum timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
        timerProgressLogIntervalMs timerPutMessageThreadNum timerReputServiceCorePoolSize
        timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRocksDBRollIntervalHours
        timerRocksDBRollRangeHours timerRollWindowSlot timerWheelSnapshotIntervalMs
        topicQueueLockNum totalReplicas transientStorePoolSize travelCqFileNumWhenGetMessage
        """
    ),
    "long": _names(
        """
        cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval commitLogForceSwapMapInterval
        commitLogSwapMapInterval flushDelayOffsetInterval haMaxTimeSlaveNotCatchup
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval maxChecksumRange
        maxHaTransferByteInSecond maxSlaveResendLength memTableFlushIntervalMs
        osPageCacheBusyTimeOutMills popRocksdbBlockCacheSize popRocksdbWriteBufferSize
        rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec timerRocksDBPrecisionMs
        """
    ),
    "boolean": _names(
        """
        allAckInSyncStateSet appendTopicForTimerDeleteKey asyncLearner
        autoMessageVersionOnTopicLen checkCRCOnRecover checkCommitLogOffsetOnRecover
        cleanFileForciblyEnable coldDataFlowControlEnable coldDataScanEnable
        combineCQEnableCheckSelf combineCQUseRocksdbForLmq correctMinOffsetMadviseEnable
        dataReadAheadEnable debugLockEnable diskFallRecorded dispatchFromSenderThread
        duplicationEnable enableAcceleratedRecovery enableAsyncReput enableAutoInSyncReplicas
        enableBatchPush enableBuildConsumeQueueConcurrently enableCleanExpiredOffset
        enableCompaction enableConsumeQueueExt enableDLegerCommitLog enableLmq enableLmqQuota
        enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMultiDispatch enableRocksDBLog
        enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats
        enabledAppendPropCRC fastFailIfNoBufferInStorePool flushCommitLogTimed forceVerifyPropCRC
        haFlowControlEnable indexFileReadEnable indexFileWriteEnable indexRocksDBEnable
        iteratorWhenUseRocksdbConsumeQueue mappedFileSwapEnable messageIndexEnable
        messageIndexSafe offsetCheckInSlave putConsumeQueueDataByFileChannel readUnCommitted
        realTimePersistRocksDBConfig recheckReputOffsetFromCq rocksdbCQDoubleWriteEnable
        rocksdbCQSelectiveDoubleWriteEnable searchBcqByCacheEnable syncFromLastFile
        syncMasterFlushOffsetWhenStartup timerEnableCheckMetrics timerEnableRetryUntilSuccess
        timerInterceptDelayLevel timerRecallToTimeWheelEnable timerRecallToTimelineEnable
        timerRocksDBEnable timerRocksDBStopScan timerSkipUnknownError timerStopEnqueue
        timerWheelEnable timerWheelSnapshotFlush transRocksDBEnable
        transWriteOriginTransHalfEnable transientStorePoolEnable useABSLock
        useReentrantLockWhenPutMessage useSeparateStorePathForRocksdbCQ wakeCommitWhenPutMessage
        wakeFlushWhenPutMessage warmMapedFileEnable writeWithoutMmap
        """
    ),
    "double": _names(
        """
        logicalDiskSpaceCleanForciblyThreshold timerRocksDBRollMaxTps
        timerRocksDBTimeExpiredMaxTps
        """
    ),
    "text": _names(
        """
        bottomMostCompressionTypeForConsumeQueueStore brokerRole combineAssignOffsetCQType
        combineCQLoadingCQTypes combineCQPreferCQType dLegerGroup dLegerPeers dLegerSelfId
        deleteWhen flushDiskType haMasterAddress messageDelayLevel preferredLeaderId
        readOnlyCommitLogStorePaths rocksdbCompressionType storePathBrokerIdentity
        storePathCommitLog storePathDLedgerCommitLog storePathEpochFile storePathRootDir storeType
        """
    ),
}

BROKER_KEYS: dict[str, frozenset[str]] = {
    "int": _names(
        """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum
        aclCacheRefreshSecond adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity
        brokerElectionPriority brokerHeartbeatInterval brokerPermission cleanOfflineBrokerInterval
        clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
        clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue
        clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads commercialBaseCount
        commercialBigCount commercialSizePerMsg commercialTimerCount commercialTransCount
        connectTimeoutMillis consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
        defaultPopShareQueueNum defaultTopicQueueNums endTransactionPoolQueueCapacity
        endTransactionThreadPoolNums expectConsumerNumUseFilter filterServerNums
        flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval heartbeatThreadPoolNums
        heartbeatThreadPoolQueueCapacity listenPort liteLagLatencyTopK
        litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
        loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity maxClientEventCount
        maxDelayTime maxErrorRateOfBloomFilter maxMessageFilterNumForNotification
        maxStatsIdleTimeInMinutes metricsExportBatchMaxConcurrent metricsExportBatchMaxDataPoints
        metricsOtelCardinalityLimit metricsPromExporterPort popCkMaxBufferSize
        popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popFromRetryProbability
        popFromRetryProbabilityForPriority popOrderLockTimerTicksPerWheel
        popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize popReviveConcurrency
        popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead printChannelGroupsMinNum
        processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
        putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums
        queryThreadPoolQueueCapacity recoverThreadPoolNums registerBrokerTimeoutMills
        registerNameServerPeriod replyThreadPoolQueueCapacity reviveQueueNum
        sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity
        serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
        serverOnewaySemaphoreValue serverSelectorThreads serverSocketBacklog
        serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds
        splitMetadataSize splitRegistrationSize statefulAuthenticationCacheExpiredSecond
        statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum syncBrokerMemberGroupPeriod transactionCheckMax
        transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
        transactionCheckRocksdbQueueCapacity transactionOpBatchInterval transactionOpMsgMaxSize
        updateNameServerAddrPeriod userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
        writeBufferHighWaterMark writeBufferLowWaterMark
        """
    ),
    "long": _names(
        """
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerId
        brokerNotActiveTimeoutMillis cgColdReadThreshold channelExpiredTimeout
        channelNotActiveInterval checkSyncStateSetPeriod consumerFallbehindThreshold
        consumerOffsetUpdateVersionStep controllerHeartBeatTimeoutMills
        delayOffsetUpdateVersionStep fetchNamesrvAddrInterval filterDataCleanTimeSpan
        forwardTimeout globalColdReadThreshold liteEventCapacityCacheTtlMs liteEventCheckInterval
        liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
        liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills liteTtlCheckInterval
        loadBalancePollNameServerInterval maxLiteSubscriptionCount maxPopPollingSize
        maxReconnectIntervalTimeSeconds metricGrpcExporterIntervalInMills
        metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills minLiteTTl
        popInflightMessageThreshold popLongPollingForceNotifyInterval popOrderLockTimerTickMs
        reviveAckWaitMs reviveInterval reviveMaxSlow reviveScanTime shortPollingTimeMills
        startAcceptSendRequestTimeStamp subscriptionExpiredTimeout syncBrokerMetadataPeriod
        syncControllerMetadataPeriod transactionCheckInterval transactionMetricFlushInterval
        transactionTimeOut waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
        waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue
        waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
        """
    ),
    "boolean": _names(
        """
        accountStatsEnable accountStatsPrintZeroValues aclEnable allowRecallWhenBrokerNotWriteable
        appendAckAsync appendCkAsync asyncSendEnable authenticationEnabled authorizationEnabled
        autoCreateSubscriptionGroup autoCreateTopicEnable autoDeleteUnusedStats
        brokerFastFailureEnable brokerTopicEnable clearRetryTopicWhenDeleteTopic
        clientCloseSocketIfTimeout clientPooledByteBufAllocatorEnable clusterTopicEnable
        coldCtrStrategyEnable commercialEnable compatibleWithOldNameSrv compressedRegister
        disableCallbackExecutor disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup
        enableBroadcastOffsetStore enableCalcFilterBitMap enableConnectionMetrics
        enableControllerMode enableCreateSysGroup enableDetailStat enableFastChannelEventProcess
        enableLagAndDlqMetrics enableLitePopLog enableLmqStats enableMessageStoreMetrics
        enableMixedMessageType enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
        enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog
        enablePopMessageThreshold enablePopMetrics enablePropertyFilter enableReconnectForGoAway
        enableRegisterProducer enableRemoteEscape enableRemotingMetrics enableRequestMetrics
        enableRetryTopicV2 enableShutdownGracefully enableSingleTopicRegister
        enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitMetadata
        enableSplitRegistration enableStatsMetrics enableTransactionMetrics estimateAccumulation
        fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer
        filterSupportRetry forceRegister highSpeedMode inBrokerContainer
        initPopOffsetByCheckMsgInMem isolateLogEnable liteLagCountMetricsEnable
        liteLagLatencyCollectEnable liteLagLatencyMetricsEnable litePullMessageEnable
        lockInStrictMode longPollingEnable metricsExportBatchSplitEnabled metricsInDelta
        migrateAuthFromV1Enabled notifyConsumerIdsChangedEnable persistConsumerOffsetIncrementally
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
        popConsumerKVServiceLog popResponseReturnActualRetryTopic popReviveSkipIfGroupAbsent
        printChannelGroups priorityOrderAsc realTimeNotifyConsumerChange recallMessageEnable
        recoverConcurrently rejectPullConsumerEnable rejectTransactionMessage
        retrieveMessageFromPopRetryTopicV1 scanAvailableNameSrv serverLoadBalancerEnable
        serverNettyWorkerGroupEnable serverPooledByteBufAllocatorEnable skipPreOnline
        skipWhenCKRePutReachMaxTimes slaveReadEnable storeReplyMessageEnable traceOn
        traceTopicEnable transferMsgByHeap useEpollNativeSelector useMessageFilterForNotification
        usePIDColdCtrStrategy useSeparateRetryQueue useServerSideResetOffset
        useSingleRocksDBForAllConfigs useStaticSubscription useTLS
        validateSystemTopicWhenUpdateTopic
        """
    ),
    "double": _names(
        """
        batchDeleteSubscriptionGroupMaxRate batchDeleteTopicMaxRate
        """
    ),
    "text": _names(
        """
        authConfigPath authenticationMetadataProvider authenticationProvider
        authenticationStrategy authenticationWhitelist authorizationMetadataProvider
        authorizationProvider authorizationStrategy authorizationWhitelist bindAddress
        brokerClusterName brokerConfigPath brokerIP1 brokerIP2 brokerName clusterName
        configBlackList configManagerVersion configName controllerAddr defaultMessageRequestMode
        initAuthenticationUser innerClientAuthenticationCredentials messageStorePlugIn
        metricsExportOtelMemoryMode metricsExporterType metricsGrpcExporterHeader
        metricsGrpcExporterTarget metricsLabel metricsPromExporterHost msgTraceTopicName
        namesrvAddr regionId rocketmqHome socksProxyConfig
        """
    ),
}


def java_type(key: str) -> str | None:
    """Return the type that Java declares for a key; None for a key that RocketMQ does not know."""
    for keys in (STORE_KEYS, BROKER_KEYS):
        for kind, names in keys.items():
            if key in names:
                return kind
    return None
